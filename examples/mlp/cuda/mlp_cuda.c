/*
 * mlp_cuda.c - trains a multilayer perceptron on GPUs, on one rank or on many.
 *
 * It takes mlp_cpu's options and data, and --precision, --graph, --tune and --peak besides. All of
 * the training across ranks is here: declare() makes the set of gradients and the optimizer on the
 * GPU, step() marks each layer's gradients as soon as they are in the stream and lets the optimizer
 * step there. The host waits for none of it; it is a step ahead of the GPU. With --graph what a
 * step computes is in CUDA graphs, one up to the loss and one for each layer's way back, so that
 * each layer's gradients still can be marked behind theirs.
 */
#include <stdio.h>
#include <stdlib.h>

#include <dtrain/dtrain_cuda.h>

#include "agree.h"
#include "course.h"
#include "gpu_model.h"
#include "gpu_options.h"
#include "random.h"

#define EVALUATION_ROWS 1024
#define SLOTS 2 /* steps of which the host has something to say to the GPU, or to hear from it */
#define WARMUP_STEPS 3
#define RECORDINGS 4 /* of a step, for batches of different sizes */

typedef struct slot {
    int64_t *numbers; /* of samples; pinned */
    cudaEvent_t copied;
    cudaEvent_t submitted, computed, reduced;
    int is_timed; /* the events are of a step whose times were not taken yet */
} slot_t;

/* --graph: a step's parts, as compute_part has them, for batches of so many rows. */
typedef struct recording {
    int rows; /* 0: not there yet */
    float scale;
    cudaGraphExec_t parts[OPTIONS_LAYERS_MAX];
} recording_t;

typedef struct trainer {
    course_t course;
    gpu_options_t gpu;
    gpu_samples_t train, test;
    gpu_model_t model;
    dtrain_gradset_t *gradients; /* of layer i: 2 i the weights', 2 i + 1 the biases' */
    dtrain_optimizer_t *optimizer;
    slot_t slots[SLOTS];
    int64_t num_fed;
    recording_t recordings[RECORDINGS];
    int num_recorded;
} trainer_t;

/* ---- Before the first step ---------------------------------------------------------------- */

static int make_slots(trainer_t *trainer, int rows, mlp_error_t *error)
{
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &trainer->slots[i];
        cudaEvent_t *events[] = {&slot->copied, &slot->submitted, &slot->computed, &slot->reduced};
        size_t bytes = (size_t)rows * sizeof *slot->numbers;
        if (gpu_check(cudaHostAlloc((void **)&slot->numbers, bytes, 0), "pinned memory", error))
            return -1;
        for (int k = 0; k < 4; k++) {
            if (gpu_check(cudaEventCreate(events[k]), "an event", error) != 0)
                return -1;
        }
    }
    return 0;
}

/* What each rank does alone and may fail at. */
static int load(trainer_t *trainer, mlp_error_t *error)
{
    course_t *course = &trainer->course;
    const options_t *options = &course->options;
    int device, rows;
    if (dtrain_cuda_device(&device) != DTRAIN_OK)
        return mlp_fail(error, "%s", dtrain_last_error());
    if (gpu_check(cudaSetDevice(device), "cudaSetDevice", error) != 0 ||
        course_load(course, EVALUATION_ROWS, &rows, error) != 0 ||
        gpu_model_create(options->layers, options->layer_count, rows, trainer->gpu.precision,
                         trainer->gpu.tunes, &trainer->model, error) != 0 ||
        make_slots(trainer, rows, error) != 0 ||
        gpu_samples_create(&course->data.train, &trainer->train, error) != 0)
        return -1;
    return gpu_samples_create(&course->data.test, &trainer->test, error);
}

static void forget(const trainer_t *trainer, recording_t *recording)
{
    for (int i = 0; i < trainer->course.options.layer_count; i++) {
        if (recording->parts[i])
            cudaGraphExecDestroy(recording->parts[i]);
    }
    *recording = (recording_t){0};
}

static void unload(trainer_t *trainer)
{
    dtrain_optimizer_destroy(trainer->optimizer);
    dtrain_gradset_destroy(trainer->gradients);
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &trainer->slots[i];
        cudaEvent_t events[] = {slot->copied, slot->submitted, slot->computed, slot->reduced};
        cudaFreeHost(slot->numbers);
        for (int k = 0; k < 4; k++) {
            if (events[k])
                cudaEventDestroy(events[k]);
        }
    }
    for (int i = 0; i < RECORDINGS; i++)
        forget(trainer, &trainer->recordings[i]);
    gpu_model_free(&trainer->model);
    gpu_samples_free(&trainer->train);
    gpu_samples_free(&trainer->test);
    course_unload(&trainer->course);
}

/* Where the library keeps a layer's parameter, and its gradient, on the GPU. */
static int place(trainer_t *trainer, int index, void **values, void **gradient, mlp_error_t *error)
{
    if (dtrain_optimizer_param(trainer->optimizer, index, values) != DTRAIN_OK ||
        dtrain_gradset_buffer(trainer->gradients, index, gradient) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

/* Declares the parameters. Those of 16 bits are kept in fp32 besides, by the optimizer. */
static int declare(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->course.options;
    gpu_model_t *model = &trainer->model;
    course_params_t list;
    course_list_params(options, model->type == GPU_BF16 ? DTRAIN_DTYPE_BF16 : DTRAIN_DTYPE_F32,
                       &list);
    /* Scaled by the global batch, the sum over ranks is the mean, however uneven the parts. */
    dtrain_gradset_desc_t set = {.struct_size = sizeof set,
                                 .op = DTRAIN_OP_SUM,
                                 .name = "mlp",
                                 .device = DTRAIN_DEVICE_CUDA};
    dtrain_optimizer_desc_t optimizer = {.struct_size = sizeof optimizer,
                                         .rule = DTRAIN_RULE_SGD,
                                         .momentum = options->momentum,
                                         .sharded = options->sharded};
    if (dtrain_gradset_create(&set, list.params, list.count, &trainer->gradients) != DTRAIN_OK ||
        dtrain_optimizer_create(trainer->gradients, &optimizer, &trainer->optimizer) != DTRAIN_OK)
        return agree_library_error(error);
    for (int i = 0; i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        if (place(trainer, 2 * i, &layer->weight, &layer->weight_gradient, error) != 0 ||
            place(trainer, 2 * i + 1, &layer->bias, &layer->bias_gradient, error) != 0)
            return -1;
    }
    return 0;
}

static int prepare(trainer_t *trainer, mlp_error_t *error)
{
    const course_t *course = &trainer->course;
    uint64_t asked = options_fingerprint(&course->options) + (uint64_t)trainer->gpu.precision;
    int status = 0;
    if (agree_on_number(asked, "the options", error) != 0 ||
        agree_on_success(load(trainer, error), error) != 0 ||
        agree_on_number(dataset_fingerprint(&course->data), "the data", error) != 0 ||
        declare(trainer, error) != 0)
        return -1;
    if (course->rank == 0)
        status = gpu_model_initialize(&trainer->model, (uint64_t)course->options.seed, error);
    if (agree_on_success(status, error) != 0)
        return -1;
    if (dtrain_optimizer_broadcast(trainer->optimizer, 0) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

/* ---- What a step computes ------------------------------------------------------------------- */

static int mark(trainer_t *trainer, int layer, mlp_error_t *error)
{
    /* In the order that a set expects: backwards. */
    const int both[2] = {2 * layer + 1, 2 * layer};
    if (dtrain_gradset_ready_n(trainer->gradients, both, 2, trainer->model.stream) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

/* Part 0 is forward and the loss, part i is backward from the i-th layer from the end. */
static int compute_part(trainer_t *trainer, int part, float scale, mlp_error_t *error)
{
    gpu_model_t *model = &trainer->model;
    if (part > 0)
        return gpu_model_backward(model, model->layer_count - part, error);
    if (gpu_model_forward(model, error) != 0)
        return -1;
    gpu_model_loss(model, scale);
    return gpu_check(cudaGetLastError(), "the step", error);
}

static int record_part(trainer_t *trainer, int part, float scale, cudaGraphExec_t *out,
                       mlp_error_t *error)
{
    cudaStream_t stream = trainer->model.stream;
    cudaGraph_t graph = NULL;
    if (gpu_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing",
                  error) != 0)
        return -1;
    int failed = compute_part(trainer, part, scale, error);
    cudaError_t status = cudaStreamEndCapture(stream, &graph);
    if (!failed && status == cudaSuccess)
        status = cudaGraphInstantiate(out, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    return failed ? -1 : gpu_check(status, "a CUDA graph", error);
}

/* The graphs for this batch; they are made when the first of its size comes. */
static int find_recording(trainer_t *trainer, float scale, const recording_t **out,
                          mlp_error_t *error)
{
    int rows = trainer->model.plan->rows;
    for (int i = 0; i < RECORDINGS; i++) {
        *out = &trainer->recordings[i];
        if ((*out)->rows == rows && (*out)->scale == scale)
            return 0;
    }
    recording_t *recording = &trainer->recordings[trainer->num_recorded++ % RECORDINGS];
    forget(trainer, recording);
    for (int part = 0; part <= trainer->model.layer_count; part++) {
        if (record_part(trainer, part, scale, &recording->parts[part], error) != 0)
            return -1;
    }
    recording->rows = rows;
    recording->scale = scale;
    *out = recording;
    return 0;
}

/* Each layer's gradients are marked while those of the layer before it are computed. */
static int compute(trainer_t *trainer, float scale, cudaEvent_t submitted, mlp_error_t *error)
{
    cudaStream_t stream = trainer->model.stream;
    const recording_t *recording = NULL;
    /* The first step loads the kernels, which is not for a stream that is captured. */
    if (trainer->gpu.graph && trainer->course.steps_done > 0 &&
        find_recording(trainer, scale, &recording, error) != 0)
        return -1;
    for (int part = 0; part <= trainer->model.layer_count; part++) {
        int failed =
            recording ? gpu_check(cudaGraphLaunch(recording->parts[part], stream), "a graph", error)
                      : compute_part(trainer, part, scale, error);
        if (failed || (part > 0 && mark(trainer, trainer->model.layer_count - part, error) != 0))
            return -1;
        if (part == 1 && gpu_check(cudaEventRecord(submitted, stream), "an event", error) != 0)
            return -1;
    }
    return 0;
}

/* A rank that got no sample of a batch brings nothing. */
static int leave_out(trainer_t *trainer, cudaEvent_t submitted, mlp_error_t *error)
{
    for (int i = 2 * trainer->model.layer_count - 1; i >= 0; i--) {
        if (dtrain_gradset_unused(trainer->gradients, i) != DTRAIN_OK)
            return agree_library_error(error);
    }
    return gpu_check(cudaEventRecord(submitted, trainer->model.stream), "an event", error);
}

/* ---- One step ------------------------------------------------------------------------------- */

/* Times of the step that had the slot before, which is long over. */
static int take_times(slot_t *slot, timing_t *timing, mlp_error_t *error)
{
    float comm_ms = 0, exposed_ms = 0;
    if (!slot->is_timed)
        return 0;
    slot->is_timed = 0;
    if (gpu_check(cudaEventSynchronize(slot->reduced), "the step", error) != 0 ||
        gpu_check(cudaEventElapsedTime(&comm_ms, slot->submitted, slot->reduced), "a time",
                  error) != 0 ||
        gpu_check(cudaEventElapsedTime(&exposed_ms, slot->computed, slot->reduced), "a time",
                  error) != 0)
        return -1;
    timing->comm += 1e-3 * comm_ms;
    timing->exposed += 1e-3 * exposed_ms;
    return 0;
}

/* This rank's part of the next batch goes to the GPU: the numbers of its samples, by way of pinned
 * memory that the GPU has done with. */
static int feed(trainer_t *trainer, dtrain_sampler_t *sampler, const gpu_samples_t *samples,
                dtrain_batch_t *batch, slot_t **slot, mlp_error_t *error)
{
    *slot = &trainer->slots[trainer->num_fed++ % SLOTS];
    batch->struct_size = sizeof *batch;
    if (gpu_check(cudaEventSynchronize((*slot)->copied), "copying samples", error) != 0)
        return -1;
    if (dtrain_sampler_next(sampler, (*slot)->numbers, trainer->model.capacity, batch) != DTRAIN_OK)
        return agree_library_error(error);
    if (batch->count == 0)
        return 0;
    if (gpu_model_load(&trainer->model, samples, (*slot)->numbers, (int)batch->count, error) != 0)
        return -1;
    return gpu_check(cudaEventRecord((*slot)->copied, trainer->model.stream), "an event", error);
}

static int step(void *context, timing_t *timing, mlp_error_t *error)
{
    trainer_t *trainer = context;
    cudaStream_t stream = trainer->model.stream;
    dtrain_batch_t batch;
    slot_t *slot;
    if (feed(trainer, trainer->course.train, &trainer->train, &batch, &slot, error) != 0 ||
        take_times(slot, timing, error) != 0)
        return -1;
    float scale = 1.0f / (float)batch.global_count;
    int status = batch.count == 0 ? leave_out(trainer, slot->submitted, error)
                                  : compute(trainer, scale, slot->submitted, error);
    if (status != 0 || gpu_check(cudaEventRecord(slot->computed, stream), "an event", error) != 0)
        return -1;
    /* The step would wait by itself: this is to measure it. */
    if (dtrain_gradset_stream_wait(trainer->gradients, stream) != DTRAIN_OK)
        return agree_library_error(error);
    if (gpu_check(cudaEventRecord(slot->reduced, stream), "an event", error) != 0)
        return -1;
    slot->is_timed = 1;
    if (dtrain_optimizer_stream_step(trainer->optimizer, course_learning_rate(&trainer->course),
                                     stream, NULL) != DTRAIN_OK)
        return agree_library_error(error);
    timing_add(timing, &(timing_t){.samples = batch.global_count});
    return gpu_check(cudaGetLastError(), "the step", error);
}

/* ---- The rest of an epoch ------------------------------------------------------------------- */

static int finish(void *context, double *loss, timing_t *timing, mlp_error_t *error)
{
    trainer_t *trainer = context;
    int64_t correct;
    for (int i = 0; i < SLOTS; i++) {
        if (take_times(&trainer->slots[i], timing, error) != 0)
            return -1;
    }
    return gpu_model_counted(&trainer->model, loss, &correct, error);
}

static int count(void *context, int64_t *correct, mlp_error_t *error)
{
    trainer_t *trainer = context;
    double loss;
    slot_t *slot;
    dtrain_batch_t batch = {.num_batches = 1};
    for (int64_t i = 0; i < batch.num_batches; i++) {
        if (feed(trainer, trainer->course.test, &trainer->test, &batch, &slot, error) != 0)
            return -1;
        if (batch.count == 0)
            continue;
        if (gpu_model_forward(&trainer->model, error) != 0)
            return -1;
        gpu_model_loss(&trainer->model, 0);
    }
    return gpu_model_counted(&trainer->model, &loss, correct, error);
}

static int checksum(void *context, uint64_t *sum, mlp_error_t *error)
{
    return gpu_model_checksum(&((trainer_t *)context)->model, sum, error);
}

static int run(trainer_t *trainer, int argc, char **argv, mlp_error_t *error)
{
    static const course_ops_t ops = {
        .step = step, .finish = finish, .count = count, .checksum = checksum};
    course_t *course = &trainer->course;
    result_t result;
    int status = gpu_options_parse(argc, argv, &course->options, &trainer->gpu, error);
    if (agree_on_success(status, error) != 0)
        return -1;
    if (course->options.help) {
        if (course->rank == 0)
            gpu_options_print_help("mlp_cuda");
        return 0;
    }
    course->warmup_steps = WARMUP_STEPS;
    if (prepare(trainer, error) != 0)
        return -1;
    if (course->rank == 0)
        course_print_plan(course, trainer->model.parameter_count);
    if (course_run(course, &ops, trainer, &result, error) != 0 ||
        course_add_traffic(trainer->gradients, &result, error) != 0)
        return -1;
    if (course->rank == 0) {
        gpu_print_products(&trainer->model);
        gpu_print_rate(&course->options, &trainer->gpu, course->ranks, &result.timing);
        report_result(stdout, &result);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "mlp_cuda: %s\n", dtrain_last_error());
        return 1;
    }
    trainer_t trainer = {.course = {.rank = dtrain_rank(), .ranks = dtrain_size()}};
    mlp_error_t error = {.text = ""};
    int status = run(&trainer, argc, argv, &error);
    if (status != 0 && (trainer.course.rank == 0 || !error.same_everywhere))
        fprintf(stderr, "mlp_cuda: %s\n", error.text);

    /* Gradients may still be in flight after an error: their memory is theirs until here. */
    if (dtrain_shutdown() != DTRAIN_OK && status == 0) {
        fprintf(stderr, "mlp_cuda: rank %d: %s\n", trainer.course.rank, dtrain_last_error());
        status = -1;
    }
    unload(&trainer);
    return status == 0 ? 0 : 1;
}
