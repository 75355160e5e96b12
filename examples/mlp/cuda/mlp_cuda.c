/*
 * mlp_cuda.c - trains a multilayer perceptron on GPUs, on one rank or on many.
 *
 * It takes mlp_cpu's options and data, and --precision, --graph and --peak besides. All of the
 * training across ranks is in train_step: each layer's gradients are submitted as soon as they are
 * in the stream, the stream waits for their sums before the descent, and the host for nothing but,
 * a step later, the handles. With --graph what the GPU computes in a step is two CUDA graphs, one
 * before the sum and one after it; then all gradients are one tensor.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/dtrain_cuda.h>

#include "agree.h"
#include "dataset.h"
#include "gpu_model.h"
#include "options.h"
#include "random.h"
#include "report.h"

#define EVALUATION_ROWS 1024
#define SLOTS 2 /* a batch is drawn while the one before is copied */

/* What mlp_cpu does not ask for. */
typedef struct gpu_options {
    gpu_precision_t precision;
    int graph;
    double peak; /* TFLOP/s of the GPU; 0: what is known of its kind */
} gpu_options_t;

typedef struct slot {
    int64_t *numbers; /* of samples; pinned */
    cudaEvent_t copied;
} slot_t;

typedef struct trainer {
    options_t options;
    gpu_options_t gpu;
    int rank, ranks;
    dataset_t data;
    dtrain_sampler_t *train; /* the training set, in another order each epoch */
    dtrain_sampler_t *test;  /* the test set, in its own */
    gpu_samples_t train_samples, test_samples;
    int64_t batches; /* of an epoch */
    gpu_model_t model;
    float *host_parameters;
    int64_t host_count;
    slot_t slots[SLOTS];
    int64_t num_fed;
    int64_t steps_total, steps_done;
    dtrain_handle_t handles[OPTIONS_LAYERS_MAX];
    int in_flight;
    cudaEvent_t submitted, computed, reduced; /* of the step that is in flight */
    cudaGraphExec_t before, after;            /* --graph; for graph_rows rows */
    int graph_rows;
    float graph_scale;
} trainer_t;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Options ------------------------------------------------------------------------------ */

static int parse_precision(const char *text, gpu_precision_t *out, mlp_error_t *error)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (gpu_precision_t)i;
            return 0;
        }
    }
    return mlp_fail(error, "--precision: '%s' is not fp32, tf32 or bf16", text);
}

static int parse_peak(const char *text, double *out, mlp_error_t *error)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && *out > 0)
        return 0;
    return mlp_fail(error, "--peak: '%s' is not a number above 0", text);
}

/* Takes this program's options out of the command line, and gives the rest to the common parser. */
static int parse(int argc, char **argv, trainer_t *trainer, mlp_error_t *error)
{
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    int count = 0, status = 0;
    if (!rest)
        return mlp_fail(error, "no memory for the options");
    trainer->gpu.precision = GPU_PRECISION_TF32;
    for (int i = 0; i < argc && status == 0; i++) {
        if (strcmp(argv[i], "--graph") == 0)
            trainer->gpu.graph = 1;
        else if (strcmp(argv[i], "--precision") == 0 && i + 1 < argc)
            status = parse_precision(argv[++i], &trainer->gpu.precision, error);
        else if (strcmp(argv[i], "--peak") == 0 && i + 1 < argc)
            status = parse_peak(argv[++i], &trainer->gpu.peak, error);
        else
            rest[count++] = argv[i];
    }
    if (status == 0)
        status = options_parse(count, rest, &trainer->options, error);
    free(rest); /* what the options point to is argv's */
    return status;
}

static void print_help(void)
{
    options_print_help(stdout, "mlp_cuda");
    printf("\nOn a GPU besides:\n"
           "  --precision P         fp32, tf32 (the default), or bf16 with parameters in fp32 too\n"
           "  --graph               what a step computes is two CUDA graphs\n"
           "  --peak TFLOPS         of the GPU at this precision, for the share that is reached\n");
}

/* ---- Before the first step ---------------------------------------------------------------- */

static int load_data(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    const int *layers = options->layers;
    uint64_t seed = (uint64_t)options->seed;
    if (options->synthetic) {
        if (dataset_synthesize(layers[0], layers[options->layer_count - 1], seed, &trainer->data,
                               error) != 0)
            return -1;
    } else if (dataset_load(options->data, &trainer->data, error) != 0 ||
               options_check_layers(options, trainer->data.features, trainer->data.classes,
                                    error) != 0) {
        return -1;
    }
    return 0;
}

static int create_samplers(trainer_t *trainer, int64_t batch, mlp_error_t *error)
{
    const dataset_t *data = &trainer->data;
    if (batch > data->train.count)
        return mlp_fail(error,
                        "--batch: %" PRId64 " samples of a step are more than the %" PRId64
                        " of the training set",
                        batch, data->train.count);
    dtrain_sampler_desc_t train = {.struct_size = sizeof train,
                                   .num_samples = data->train.count,
                                   .global_batch = batch,
                                   .seed = (uint64_t)trainer->options.seed};
    dtrain_sampler_desc_t test = {.struct_size = sizeof test,
                                  .num_samples = data->test.count,
                                  .global_batch = (int64_t)EVALUATION_ROWS * trainer->ranks,
                                  .order = DTRAIN_SAMPLER_SEQUENTIAL};
    if (dtrain_sampler_create(&train, &trainer->train) != DTRAIN_OK ||
        dtrain_sampler_create(&test, &trainer->test) != DTRAIN_OK)
        return agree_library_error(error);
    trainer->batches = (data->train.count + batch - 1) / batch;
    return 0;
}

static int make_slots(trainer_t *trainer, int rows, mlp_error_t *error)
{
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &trainer->slots[i];
        size_t bytes = (size_t)rows * sizeof *slot->numbers;
        if (gpu_check(cudaHostAlloc((void **)&slot->numbers, bytes, 0), "pinned memory", error) ||
            gpu_check(cudaEventCreate(&slot->copied), "an event", error))
            return -1;
    }
    cudaEvent_t *events[] = {&trainer->submitted, &trainer->computed, &trainer->reduced};
    for (int i = 0; i < 3; i++) {
        if (gpu_check(cudaEventCreate(events[i]), "an event", error) != 0)
            return -1;
    }
    return 0;
}

/* What each rank does alone and may fail at. */
static int load(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    int device;
    if (dtrain_cuda_device(&device) != DTRAIN_OK)
        return mlp_fail(error, "%s", dtrain_last_error());
    int64_t batch = options_global_batch(options, trainer->ranks);
    if (gpu_check(cudaSetDevice(device), "cudaSetDevice", error) != 0 ||
        load_data(trainer, error) != 0 || create_samplers(trainer, batch, error) != 0)
        return -1;
    int64_t rows = (batch + trainer->ranks - 1) / trainer->ranks;
    if (rows < EVALUATION_ROWS)
        rows = EVALUATION_ROWS;
    if (gpu_model_create(options->layers, options->layer_count, (int)rows, trainer->gpu.precision,
                         &trainer->model, error) != 0 ||
        make_slots(trainer, (int)rows, error) != 0)
        return -1;
    for (int i = 0; i + 1 < options->layer_count; i++)
        trainer->host_count += (int64_t)(options->layers[i] + 1) * options->layers[i + 1];
    trainer->host_parameters = calloc((size_t)trainer->host_count, sizeof(float));
    if (!trainer->host_parameters)
        return mlp_fail(error, "no memory for the parameters");
    if (gpu_samples_create(&trainer->data.train, &trainer->train_samples, error) != 0)
        return -1;
    return gpu_samples_create(&trainer->data.test, &trainer->test_samples, error);
}

static void unload(trainer_t *trainer)
{
    for (int i = 0; i < SLOTS; i++) {
        cudaFreeHost(trainer->slots[i].numbers);
        if (trainer->slots[i].copied)
            cudaEventDestroy(trainer->slots[i].copied);
    }
    cudaEvent_t events[] = {trainer->submitted, trainer->computed, trainer->reduced};
    for (int i = 0; i < 3; i++) {
        if (events[i])
            cudaEventDestroy(events[i]);
    }
    if (trainer->before)
        cudaGraphExecDestroy(trainer->before);
    if (trainer->after)
        cudaGraphExecDestroy(trainer->after);
    gpu_model_free(&trainer->model);
    free(trainer->host_parameters);
    gpu_samples_free(&trainer->train_samples);
    gpu_samples_free(&trainer->test_samples);
    dtrain_sampler_destroy(trainer->train);
    dtrain_sampler_destroy(trainer->test);
    dataset_free(&trainer->data);
}

/* As the trainer on the CPU does it, so that both begin alike. */
static void initialize(trainer_t *trainer)
{
    const options_t *options = &trainer->options;
    random_stream_t random = random_begin((uint64_t)options->seed, RANDOM_WEIGHTS);
    float *at = trainer->host_parameters;
    for (int i = 0; i + 1 < options->layer_count; i++) {
        int64_t weights = (int64_t)options->layers[i] * options->layers[i + 1];
        float deviation = sqrtf(2.0f / (float)options->layers[i]);
        for (int64_t k = 0; k < weights; k++)
            *at++ = deviation * random_normal(&random);
        at += options->layers[i + 1]; /* biases are 0 */
    }
}

static int prepare(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    uint64_t asked = options_fingerprint(options) + (uint64_t)trainer->gpu.precision;
    if (agree_on_number(asked, "the options", error) != 0 ||
        agree_on_success(load(trainer, error), error) != 0 ||
        agree_on_number(dataset_fingerprint(&trainer->data), "the data", error) != 0)
        return -1;
    int64_t steps = options->epochs * trainer->batches;
    trainer->steps_total = options->steps > 0 ? smaller(options->steps, steps) : steps;
    if (trainer->rank == 0)
        initialize(trainer);
    if (dtrain_broadcast("parameters", trainer->host_parameters, trainer->host_count,
                         DTRAIN_DTYPE_F32, 0) != DTRAIN_OK)
        return agree_library_error(error);
    return gpu_model_set(&trainer->model, trainer->host_parameters, error);
}

/* ---- Gradients ---------------------------------------------------------------------------- */

/* Submits a sum over all ranks, in place: of what is in the stream by now. */
static int submit(trainer_t *trainer, const char *name, int64_t offset, int64_t count,
                  mlp_error_t *error)
{
    gpu_model_t *model = &trainer->model;
    char *gradients = (char *)model->gradients + offset * (int64_t)model->element;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = name,
                              .in = gradients,
                              .out = gradients,
                              .ndim = 1,
                              .shape = &count,
                              .dtype =
                                  model->type == GPU_BF16 ? DTRAIN_DTYPE_BF16 : DTRAIN_DTYPE_F32,
                              .device = DTRAIN_DEVICE_CUDA,
                              .stream = model->stream};
    if (dtrain_allreduce_async(&tensor, NULL, &trainer->handles[trainer->in_flight]) != DTRAIN_OK)
        return agree_library_error(error);
    trainer->in_flight++;
    return 0;
}

/* The stream waits for the sums; the host only until they are on their way. */
static int let_stream_wait(trainer_t *trainer, mlp_error_t *error)
{
    for (int i = 0; i < trainer->in_flight; i++) {
        if (dtrain_stream_wait(trainer->handles[i], trainer->model.stream) != DTRAIN_OK)
            return agree_library_error(error);
    }
    return 0;
}

/* The host waits for the step before, whose names are to be used again; adds its times. */
static int finish_step(trainer_t *trainer, timing_t *timing, mlp_error_t *error)
{
    int status = 0;
    float comm_ms = 0, exposed_ms = 0;
    if (trainer->in_flight == 0)
        return 0;
    if (dtrain_wait_all(trainer->handles, trainer->in_flight, NULL) != DTRAIN_OK)
        status = agree_library_error(error);
    for (int i = 0; i < trainer->in_flight; i++)
        dtrain_release(trainer->handles[i]);
    trainer->in_flight = 0;
    if (status != 0 || gpu_check(cudaEventSynchronize(trainer->reduced), "the step", error) != 0)
        return -1;
    cudaEventElapsedTime(&comm_ms, trainer->submitted, trainer->reduced);
    cudaEventElapsedTime(&exposed_ms, trainer->computed, trainer->reduced);
    timing->comm += 1e-3 * comm_ms;
    timing->exposed += 1e-3 * exposed_ms;
    return 0;
}

/* ---- What a step computes ------------------------------------------------------------------- */

static int compute_layers(trainer_t *trainer, int rows, float scale, int submits,
                          mlp_error_t *error)
{
    gpu_model_t *model = &trainer->model;
    if (rows > 0 && gpu_model_forward(model, rows, error) != 0)
        return -1;
    if (rows > 0)
        gpu_model_loss(model, rows, scale);
    for (int i = model->layer_count - 1; i >= 0; i--) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", i + 1);
        if (gpu_model_backward(model, i, rows, error) != 0)
            return -1;
        if (submits && i == model->layer_count - 1)
            cudaEventRecord(trainer->submitted, model->stream);
        if (submits &&
            submit(trainer, name, model->layers[i].offset, model->layers[i].count, error) != 0)
            return -1;
    }
    return gpu_check(cudaGetLastError(), "the step", error);
}

static void descend(trainer_t *trainer)
{
    gpu_model_t *model = &trainer->model;
    gpu_sgd(model->type, model->parameters, model->velocity, model->gradients,
            model->type == GPU_F32 ? NULL : model->working, model->parameter_count,
            (float)trainer->options.momentum, model->rate, model->stream);
}

/* ---- The same as graphs --------------------------------------------------------------------- */

static int end_capture(trainer_t *trainer, cudaGraphExec_t *exec, mlp_error_t *error)
{
    cudaGraph_t graph;
    if (gpu_check(cudaStreamEndCapture(trainer->model.stream, &graph), "capturing a graph",
                  error) != 0)
        return -1;
    if (*exec)
        cudaGraphExecDestroy(*exec);
    *exec = NULL;
    cudaError_t status = cudaGraphInstantiate(exec, graph, 0);
    cudaGraphDestroy(graph);
    return gpu_check(status, "cudaGraphInstantiate", error);
}

/* Captured again when an epoch's last batch is shorter. */
static int capture(trainer_t *trainer, int rows, float scale, mlp_error_t *error)
{
    cudaStream_t stream = trainer->model.stream;
    if (trainer->before && trainer->graph_rows == rows && trainer->graph_scale == scale)
        return 0;
    if (gpu_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing",
                  error) != 0 ||
        compute_layers(trainer, rows, scale, 0, error) != 0 ||
        end_capture(trainer, &trainer->before, error) != 0 ||
        gpu_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing",
                  error) != 0)
        return -1;
    descend(trainer);
    trainer->graph_rows = rows;
    trainer->graph_scale = scale;
    return end_capture(trainer, &trainer->after, error);
}

static int launch_before(trainer_t *trainer, int rows, float scale, mlp_error_t *error)
{
    gpu_model_t *model = &trainer->model;
    if (capture(trainer, rows, scale, error) != 0 ||
        gpu_check(cudaGraphLaunch(trainer->before, model->stream), "cudaGraphLaunch", error) != 0)
        return -1;
    cudaEventRecord(trainer->submitted, model->stream);
    return submit(trainer, "gradients", 0, model->parameter_count, error);
}

/* ---- Steps and epochs ------------------------------------------------------------------------ */

/* This rank's part of the next batch goes to the GPU: the numbers of its samples, by way of pinned
 * memory that the GPU has done with. */
static int feed(trainer_t *trainer, dtrain_sampler_t *sampler, const gpu_samples_t *samples,
                dtrain_batch_t *batch, mlp_error_t *error)
{
    slot_t *slot = &trainer->slots[trainer->num_fed++ % SLOTS];
    *batch = (dtrain_batch_t){.struct_size = sizeof *batch};
    if (gpu_check(cudaEventSynchronize(slot->copied), "copying samples", error) != 0)
        return -1;
    if (dtrain_sampler_next(sampler, slot->numbers, trainer->model.capacity, batch) != DTRAIN_OK)
        return agree_library_error(error);
    if (batch->count == 0)
        return 0;
    if (gpu_model_load(&trainer->model, samples, slot->numbers, (int)batch->count, error) != 0)
        return -1;
    return gpu_check(cudaEventRecord(slot->copied, trainer->model.stream), "an event", error);
}

/* Half a cosine, from the peak to 0. */
static float rate_of(const trainer_t *trainer)
{
    double done = (double)trainer->steps_done / (double)trainer->steps_total;
    return (float)(trainer->options.learning_rate * 0.5 * (1 + cos(M_PI * done)));
}

static int train_step(trainer_t *trainer, timing_t *timing, mlp_error_t *error)
{
    gpu_model_t *model = &trainer->model;
    double begin = report_clock();
    float rate = rate_of(trainer);
    dtrain_batch_t batch;
    if (feed(trainer, trainer->train, &trainer->train_samples, &batch, error) != 0 ||
        finish_step(trainer, timing, error) != 0)
        return -1;
    /* Scaled by the global batch, the sum over ranks is the mean, however uneven the parts. */
    float scale = 1.0f / (float)batch.global_count;
    int rows = (int)batch.count;
    int status = trainer->gpu.graph ? launch_before(trainer, rows, scale, error)
                                    : compute_layers(trainer, rows, scale, 1, error);
    if (status != 0)
        return -1;
    cudaEventRecord(trainer->computed, model->stream);
    /* A number of the host's stack: such a copy is over when the call returns. */
    if (let_stream_wait(trainer, error) != 0 ||
        gpu_check(
            cudaMemcpyAsync(model->rate, &rate, sizeof rate, cudaMemcpyHostToDevice, model->stream),
            "the learning rate", error) != 0)
        return -1;
    cudaEventRecord(trainer->reduced, model->stream);
    if (!trainer->gpu.graph)
        descend(trainer);
    else if (gpu_check(cudaGraphLaunch(trainer->after, model->stream), "cudaGraphLaunch", error))
        return -1;
    trainer->steps_done++;
    timing_add(
        timing,
        &(timing_t){.steps = 1, .samples = batch.global_count, .total = report_clock() - begin});
    return gpu_check(cudaGetLastError(), "the step", error);
}

static int train_epoch(trainer_t *trainer, int64_t epoch, double *loss, timing_t *timing,
                       mlp_error_t *error)
{
    int64_t steps = smaller(trainer->batches, trainer->steps_total - trainer->steps_done), correct;
    double sum = 0, begin = report_clock();
    for (int64_t step = 0; step < steps; step++) {
        if (train_step(trainer, timing, error) != 0)
            return -1;
        if (trainer->rank == 0)
            report_progress(epoch, step + 1, trainer->batches);
    }
    if (finish_step(trainer, timing, error) != 0 ||
        gpu_model_counted(&trainer->model, &sum, &correct, error) != 0)
        return -1;
    timing->total = report_clock() - begin; /* the host runs ahead of the GPU within an epoch */
    if (dtrain_allreduce("loss", &sum, &sum, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM) != DTRAIN_OK)
        return agree_library_error(error);
    *loss = sum / (double)timing->samples;
    if (isfinite(*loss))
        return 0;
    mlp_fail(error,
             "the loss is not a finite number after step %" PRId64 ": a smaller --lr may "
             "help",
             trainer->steps_done);
    error->same_everywhere = 1;
    return -1;
}

static int evaluate(trainer_t *trainer, double *accuracy, mlp_error_t *error)
{
    int64_t correct;
    double loss;
    dtrain_batch_t batch;
    if (dtrain_sampler_seek(trainer->test, 0, 0) != DTRAIN_OK)
        return agree_library_error(error);
    do {
        if (feed(trainer, trainer->test, &trainer->test_samples, &batch, error) != 0)
            return -1;
        int rows = (int)batch.count;
        if (rows == 0)
            continue;
        if (gpu_model_forward(&trainer->model, rows, error) != 0)
            return -1;
        gpu_model_loss(&trainer->model, rows, 0);
    } while (batch.batch + 1 < batch.num_batches);
    if (gpu_model_counted(&trainer->model, &loss, &correct, error) != 0)
        return -1;
    if (dtrain_allreduce("correct", &correct, &correct, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) !=
        DTRAIN_OK)
        return agree_library_error(error);
    *accuracy = (double)correct / (double)trainer->data.test.count;
    return 0;
}

/* ---- What the user sees ------------------------------------------------------------------------
 */

/* Dense, as the makers state them, of the largest GPU of a generation; 0: not known. */
static double known_peak(gpu_precision_t precision)
{
    static const struct {
        int major, minor;
        double tflops[3]; /* fp32, tf32, bf16 */
    } known[] = {{8, 0, {19.5, 156, 312}}, {9, 0, {67, 495, 989}}, {10, 0, {75, 1100, 2250}}};
    struct cudaDeviceProp properties;
    int device;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].major == properties.major && known[i].minor == properties.minor)
            return known[i].tflops[precision];
    }
    return 0;
}

/* Products alone: one forward and two backward, but for the first layer's input. */
static void print_rate(const trainer_t *trainer, const timing_t *timing)
{
    const int *layers = trainer->options.layers;
    double flops = 0;
    for (int i = 0; i + 1 < trainer->options.layer_count; i++)
        flops += (i == 0 ? 4.0 : 6.0) * layers[i] * layers[i + 1];
    double tflops = flops * (double)timing->samples / timing->total / trainer->ranks / 1e12;
    double peak = trainer->gpu.peak > 0 ? trainer->gpu.peak : known_peak(trainer->gpu.precision);
    double bytes = (double)trainer->model.parameter_count * (double)trainer->model.element;
    printf("%.1f TFLOP/s a GPU", tflops);
    if (peak > 0)
        printf(", %.1f%% of %.0f", 100 * tflops / peak, peak);
    printf("; %.0f samples/s a GPU", (double)timing->samples / timing->total / trainer->ranks);
    if (timing->comm > 0 && trainer->ranks > 1)
        printf("; %.1f MB of gradients a step, bus %.2f GB/s, %.0f%% of it overlapped", bytes / 1e6,
               bytes * (double)timing->steps * 2 * (trainer->ranks - 1) / trainer->ranks /
                   timing->comm / 1e9,
               100 * (1 - timing->exposed / timing->comm));
    printf("\n");
    fflush(stdout);
}

static int compare_parameters(trainer_t *trainer, uint64_t *checksum, mlp_error_t *error)
{
    if (agree_on_success(gpu_model_get(&trainer->model, trainer->host_parameters, error), error))
        return -1;
    *checksum = checksum_bytes(CHECKSUM_START, trainer->host_parameters,
                               (size_t)trainer->host_count * sizeof(float));
    return agree_on_number(*checksum, "the parameters after training", error);
}

static int train_all(trainer_t *trainer, mlp_error_t *error)
{
    result_t result = {.ranks = trainer->ranks};
    for (int64_t epoch = 1; trainer->steps_done < trainer->steps_total; epoch++) {
        timing_t timing = {0};
        if (train_epoch(trainer, epoch, &result.train_loss, &timing, error) != 0 ||
            evaluate(trainer, &result.test_accuracy, error) != 0)
            return -1;
        timing_add(&result.timing, &timing);
        result.epochs = epoch;
        if (trainer->rank == 0)
            report_epoch(stdout, epoch, trainer->options.epochs, result.train_loss,
                         result.test_accuracy, &timing);
    }
    if (compare_parameters(trainer, &result.param_checksum, error) != 0)
        return -1;
    if (trainer->rank == 0) {
        print_rate(trainer, &result.timing);
        report_result(stdout, &result);
    }
    return 0;
}

static int run(trainer_t *trainer, int argc, char **argv, mlp_error_t *error)
{
    if (agree_on_success(parse(argc, argv, trainer, error), error) != 0)
        return -1;
    if (trainer->options.help) {
        if (trainer->rank == 0)
            print_help();
        return 0;
    }
    return prepare(trainer, error) == 0 ? train_all(trainer, error) : -1;
}

int main(int argc, char **argv)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "mlp_cuda: %s\n", dtrain_last_error());
        return 1;
    }
    trainer_t trainer = {.rank = dtrain_rank(), .ranks = dtrain_size()};
    mlp_error_t error = {.text = ""};
    int status = run(&trainer, argc, argv, &error);
    if (status != 0 && (trainer.rank == 0 || !error.same_everywhere))
        fprintf(stderr, "mlp_cuda: %s\n", error.text);

    /* Gradients may still be in flight after an error: their memory is theirs until here. */
    if (dtrain_shutdown() != DTRAIN_OK && status == 0) {
        fprintf(stderr, "mlp_cuda: rank %d: %s\n", trainer.rank, dtrain_last_error());
        status = -1;
    }
    unload(&trainer);
    return status == 0 ? 0 : 1;
}
