/* Gradient sets and optimizers in device memory, next to the same training in host memory: the
 * same bits, for all rules and types, sharded or not, streamed or not; saves go from one to the
 * other. Gradients are small multiples of 1/64, so that sums are exact in any order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

#define PARAMS 5
#define TOTAL (5000 + 33 + 20000 + 1 + 4096)
#define STEPS 6

static const int64_t counts[PARAMS] = {5000, 33, 20000, 1, 4096};
static const char *const names[PARAMS] = {"a", "b", "c", "d", "e"};
static int rank, size;

typedef struct way {
    int device;
    int streamed; /* stream_step in a stream of its own, marks in two */
    int own;      /* every other gradient and parameter in the caller's memory */
    int sharded, rule, nesterov;
    dtrain_dtype_t dtype; /* of parameters; 0: float32 */
    dtrain_dtype_t gradient_dtype;
    double max_norm, loss_scale;
    int bad_step; /* whose gradient is infinite on rank 0; -1: none */
    int64_t bucket_bytes;
    const char *codec; /* NULL: none */
} way_t;

typedef struct training {
    way_t way;
    dtrain_gradset_t *set;
    dtrain_optimizer_t *optimizer;
    void *gradients[PARAMS], *values[PARAMS], *owned[2 * PARAMS];
    cudaStream_t streams[2];
    dtrain_step_info_t info;
} training_t;

/* ---- Memory of either kind ------------------------------------------------------------------ */

static void *new_memory(const way_t *way, size_t bytes)
{
    void *memory = NULL;
    if (way->device)
        return device_new(bytes);
    CHECK_OK(dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CPU));
    return memory;
}

static void write_memory(const training_t *training, int stream, void *to, const void *from,
                         size_t bytes)
{
    if (!training->way.device)
        memcpy(to, from, bytes);
    else if (training->way.streamed)
        CUDA_OK(
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, training->streams[stream]));
    else
        device_write(to, from, bytes);
}

static void read_memory(const training_t *training, void *to, const void *from, size_t bytes)
{
    if (!training->way.device)
        memcpy(to, from, bytes);
    else
        device_read(to, from, bytes);
}

/* ---- One training --------------------------------------------------------------------------- */

/* float32 ones move to where the gradients say, so that the callback is told all that it needs. */
static void user_update(const dtrain_update_t *update, void *user)
{
    const way_t *way = user;
    size_t bytes = (size_t)update->count * sizeof(float);
    CHECK(update->device == way->device);
    if (way->device)
        CUDA_OK(cudaMemcpyAsync(update->values, update->gradients, bytes, cudaMemcpyDeviceToDevice,
                                update->stream));
    else
        memcpy(update->values, update->gradients, bytes);
}

static void fill_params(training_t *training, dtrain_param_t *params)
{
    const way_t *way = &training->way;
    for (int i = 0; i < PARAMS; i++) {
        size_t bytes = (size_t)counts[i] * 8;
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &counts[i],
                                     .dtype = way->dtype ? way->dtype : DTRAIN_DTYPE_F32,
                                     .gradient_dtype = way->gradient_dtype};
        if (!way->own || i % 2)
            continue;
        params[i].gradient = training->owned[2 * i] = new_memory(way, bytes);
        params[i].data = training->owned[2 * i + 1] = new_memory(way, bytes);
    }
}

static dtrain_dtype_t dtype_of(const training_t *training)
{
    return training->way.dtype ? training->way.dtype : DTRAIN_DTYPE_F32;
}

static void start_values(training_t *training)
{
    static double host[TOTAL];
    dtrain_dtype_t dtype = dtype_of(training);
    for (int i = 0; i < PARAMS; i++) {
        CHECK_OK(dtrain_optimizer_param(training->optimizer, i, &training->values[i]));
        CHECK_OK(dtrain_gradset_buffer(training->set, i, &training->gradients[i]));
        for (int64_t e = 0; e < counts[i]; e++)
            values_store(dtype, host, e, (double)((e * 7919 + i) % 256) / 128 - 1);
        if (rank == 0)
            write_memory(training, 0, training->values[i], host,
                         (size_t)counts[i] * dtrain_dtype_size(dtype));
    }
    if (training->way.streamed)
        CUDA_OK(cudaStreamSynchronize(training->streams[0]));
    CHECK_OK(dtrain_optimizer_broadcast(training->optimizer, 0));
}

static int begin(training_t *training, const way_t *way)
{
    dtrain_param_t params[PARAMS];
    dtrain_codec_t *codec = NULL;
    *training = (training_t){.way = *way, .info = {.struct_size = sizeof training->info}};
    if (way->codec)
        CHECK_OK(dtrain_codec_create(way->codec, &codec));
    for (int i = 0; i < 2 && way->streamed; i++)
        CUDA_OK(cudaStreamCreateWithFlags(&training->streams[i], cudaStreamNonBlocking));
    dtrain_gradset_desc_t set = {.struct_size = sizeof set,
                                 .op = DTRAIN_OP_AVERAGE,
                                 .first_bucket_bytes = way->bucket_bytes,
                                 .bucket_bytes = way->bucket_bytes,
                                 .codec = codec,
                                 .device = way->device};
    dtrain_optimizer_desc_t optimizer = {.struct_size = sizeof optimizer,
                                         .rule = way->rule,
                                         .momentum = way->rule == DTRAIN_RULE_SGD ? 0.9 : 0,
                                         .nesterov = way->nesterov,
                                         .weight_decay = 1e-3,
                                         .max_norm = way->max_norm,
                                         .loss_scale = way->loss_scale,
                                         .sharded = way->sharded,
                                         .update = user_update,
                                         .user = &training->way};
    fill_params(training, params);
    dtrain_status_t status = dtrain_gradset_create(&set, params, PARAMS, &training->set);
    dtrain_codec_destroy(codec);
    if (!CHECK_OK(status) ||
        !CHECK_OK(dtrain_optimizer_create(training->set, &optimizer, &training->optimizer)))
        return -1;
    start_values(training);
    return 0;
}

static void end(training_t *training)
{
    dtrain_optimizer_destroy(training->optimizer);
    CHECK_OK(dtrain_gradset_destroy(training->set));
    for (int i = 0; i < 2 * PARAMS; i++)
        CHECK_OK(dtrain_mem_free(training->owned[i]));
    for (int i = 0; i < 2 && training->way.streamed; i++)
        CUDA_OK(cudaStreamDestroy(training->streams[i]));
}

/* The host's memory of a step lives until the stream has read it. */
static void write_gradients(training_t *training, int step, char *host)
{
    const way_t *way = &training->way;
    dtrain_dtype_t dtype = way->gradient_dtype ? way->gradient_dtype : dtype_of(training);
    size_t element = dtrain_dtype_size(dtype);
    for (int i = PARAMS - 1; i >= 0; i--) {
        int stream = i % 2;
        for (int64_t e = 0; e < counts[i]; e++) {
            int64_t k = (e * 31 + i * 17 + step * 7 + rank * 5) % 31 - 15;
            values_store(dtype, host, e, (double)k / 64);
        }
        if (step == way->bad_step && rank == 0 && i == 2)
            values_store(dtype, host, 12345, INFINITY);
        write_memory(training, stream, training->gradients[i], host, (size_t)counts[i] * element);
        CHECK_OK(dtrain_gradset_ready(training->set, i, training->streams[stream]));
        host += (size_t)counts[i] * element;
    }
}

static void step(training_t *training, int number)
{
    static char host[STEPS * 2][TOTAL * 8];
    write_gradients(training, number, host[number % (STEPS * 2)]);
    if (!training->way.streamed) {
        CHECK_OK(dtrain_optimizer_step(training->optimizer, 1e-2, &training->info));
        return;
    }
    CHECK_OK(dtrain_optimizer_stream_step(training->optimizer, 1e-2, training->streams[0],
                                          &training->info));
    /* What the other stream writes next comes behind the update that has read it. */
    cudaEvent_t event;
    CUDA_OK(cudaEventCreate(&event));
    CUDA_OK(cudaEventRecord(event, training->streams[0]));
    CUDA_OK(cudaStreamWaitEvent(training->streams[1], event, 0));
    CUDA_OK(cudaEventDestroy(event));
}

static void read_values(training_t *training, double *to)
{
    static char host[TOTAL * 8];
    dtrain_dtype_t dtype = dtype_of(training);
    if (training->way.streamed)
        CUDA_OK(cudaStreamSynchronize(training->streams[0]));
    for (int i = 0; i < PARAMS; i++) {
        read_memory(training, host, training->values[i],
                    (size_t)counts[i] * dtrain_dtype_size(dtype));
        for (int64_t e = 0; e < counts[i]; e++)
            *to++ = values_load(dtype, host, e);
    }
}

static void train(const way_t *way, double *values, dtrain_step_info_t *info)
{
    training_t training;
    if (begin(&training, way))
        return;
    for (int i = 0; i < STEPS; i++)
        step(&training, i);
    read_values(&training, values);
    *info = training.info;
    end(&training);
}

/* ---- Next to the host's --------------------------------------------------------------------- */

static int num_wrong(const double *values, const double *wanted)
{
    int wrong = 0;
    for (int64_t i = 0; i < TOTAL; i++)
        wrong += !(values[i] == wanted[i]);
    return wrong;
}

static void compare(const char *name, way_t way)
{
    static double host[TOTAL], device[TOTAL];
    dtrain_step_info_t host_info = {0}, info = {0};
    way.bucket_bytes = 1 << 15;
    train(&way, host, &host_info);
    CHECK(host[0] != -1);
    way.device = DTRAIN_DEVICE_CUDA;
    for (int i = 0; i < 4; i++) {
        way.streamed = i % 2;
        way.own = i / 2;
        train(&way, device, &info);
        int wrong = num_wrong(device, host);
        if (!CHECK(wrong == 0))
            fprintf(stderr, "%s, streamed %d, own %d: %d wrong\n", name, i % 2, i / 2, wrong);
        CHECK(info.step == host_info.step && info.norm == host_info.norm);
        CHECK(info.clip == host_info.clip && info.loss_scale == host_info.loss_scale);
    }
}

static void test_rules(void)
{
    for (int sharded = 0; sharded < 2; sharded++) {
        compare("sgd", (way_t){.rule = DTRAIN_RULE_SGD, .sharded = sharded, .bad_step = -1});
        compare("adamw", (way_t){.rule = DTRAIN_RULE_ADAMW, .sharded = sharded, .bad_step = -1});
        compare("rounded", (way_t){.rule = DTRAIN_RULE_ADAM,
                                   .sharded = sharded,
                                   .dtype = DTRAIN_DTYPE_BF16,
                                   .bad_step = -1});
        compare("double", (way_t){.rule = DTRAIN_RULE_SGD,
                                  .nesterov = 1,
                                  .sharded = sharded,
                                  .dtype = DTRAIN_DTYPE_F64,
                                  .bad_step = -1});
        compare("half", (way_t){.rule = DTRAIN_RULE_ADAM,
                                .sharded = sharded,
                                .gradient_dtype = DTRAIN_DTYPE_F16,
                                .bad_step = -1});
        compare(
            "clipped",
            (way_t){.rule = DTRAIN_RULE_ADAM, .sharded = sharded, .max_norm = 0.5, .bad_step = -1});
        compare("scaled", (way_t){.rule = DTRAIN_RULE_SGD,
                                  .sharded = sharded,
                                  .loss_scale = 1024,
                                  .bad_step = 2});
        compare("user", (way_t){.rule = DTRAIN_RULE_USER, .sharded = sharded, .bad_step = -1});
    }
}

/* Those that round go over NCCL, where there is one; of these gradients it loses nothing. */
static void test_codecs(void)
{
    static const char *const codecs[] = {"fp16", "int8", "topk:0.1"};
    for (int i = 0; i < 3; i++) {
        compare(codecs[i], (way_t){.rule = DTRAIN_RULE_ADAM, .codec = codecs[i], .bad_step = -1});
        compare(
            codecs[i],
            (way_t){.rule = DTRAIN_RULE_SGD, .codec = codecs[i], .max_norm = 0.5, .bad_step = -1});
    }
}

/* Trained on `from`, saved, loaded on `to`, trained to the end. */
static void save_and_load(const way_t *from, const way_t *to, int in_shards, double *values)
{
    training_t training;
    char path[64];
    int64_t id = getpid();
    CHECK_OK(dtrain_broadcast("id", &id, 1, DTRAIN_DTYPE_I64, 0));
    snprintf(path, sizeof path, "/tmp/dtrain_test_gpu_training.%d", (int)id);
    if (begin(&training, from))
        return;
    for (int i = 0; i < STEPS / 2; i++)
        step(&training, i);
    CHECK_OK(dtrain_optimizer_save(training.optimizer, path, in_shards));
    end(&training);
    if (begin(&training, to))
        return;
    CHECK_OK(dtrain_optimizer_load(training.optimizer, path, in_shards ? -1 : 0));
    for (int i = STEPS / 2; i < STEPS; i++)
        step(&training, i);
    read_values(&training, values);
    end(&training);
    CHECK_OK(dtrain_barrier());
    char command[96];
    snprintf(command, sizeof command, "rm -f '%s'*", path);
    CHECK(rank != 0 || system(command) == 0);
}

static void test_saves(void)
{
    static double wanted[TOTAL], values[TOTAL];
    way_t host = {.rule = DTRAIN_RULE_ADAM,
                  .dtype = DTRAIN_DTYPE_BF16,
                  .bad_step = -1,
                  .bucket_bytes = 1 << 15};
    way_t device = host;
    dtrain_step_info_t info;
    device.device = DTRAIN_DEVICE_CUDA;
    device.streamed = 1;
    train(&host, wanted, &info);
    for (int i = 0; i < 4; i++) {
        host.sharded = i % 2;
        device.sharded = i / 2;
        save_and_load(&host, &device, i % 2, values);
        CHECK(num_wrong(values, wanted) == 0);
        save_and_load(&device, &host, i % 2, values);
        CHECK(num_wrong(values, wanted) == 0);
        save_and_load(&device, &device, i % 2, values);
        CHECK(num_wrong(values, wanted) == 0);
    }
}

/* ---- A set by itself ------------------------------------------------------------------------ */

static dtrain_gradset_t *make_set(int32_t device, void *gradient, dtrain_status_t wanted)
{
    static const int64_t count = 1000;
    dtrain_gradset_t *set = NULL;
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .device = device};
    dtrain_param_t params[2] = {{.struct_size = sizeof params[0],
                                 .name = "x",
                                 .ndim = 1,
                                 .shape = &count,
                                 .dtype = DTRAIN_DTYPE_F32,
                                 .gradient = gradient},
                                {.struct_size = sizeof params[1],
                                 .name = "y",
                                 .ndim = 1,
                                 .shape = &count,
                                 .dtype = DTRAIN_DTYPE_F32}};
    CHECK_STATUS(dtrain_gradset_create(&desc, params, 2, &set), wanted);
    return set;
}

static int all_are(const void *device, float wanted)
{
    float host[1000];
    int wrong = 0;
    device_read(host, device, sizeof host);
    for (int i = 0; i < 1000; i++)
        wrong += host[i] != wanted;
    return wrong == 0;
}

static void write_all(void *device, float value)
{
    float host[1000];
    for (int i = 0; i < 1000; i++)
        host[i] = value;
    device_write(device, host, sizeof host);
}

/* What nobody brings counts as zero, said or not; a pass alone marks nothing as ready. */
static void test_missing_and_passes(void)
{
    void *memory = device_new(4000), *x, *y;
    dtrain_gradset_t *set = make_set(DTRAIN_DEVICE_CUDA, memory, DTRAIN_OK);
    CHECK_OK(dtrain_gradset_buffer(set, 0, &x));
    CHECK_OK(dtrain_gradset_buffer(set, 1, &y));
    CHECK(x == memory);
    for (int step = 0; step < 3; step++) {
        write_all(x, 1);
        write_all(y, 2);
        CHECK_OK(dtrain_gradset_ready(set, 0, NULL));
        if (step > 0)
            CHECK_OK(dtrain_gradset_unused(set, 1));
        CHECK_OK(step == 1 ? dtrain_gradset_stream_wait(set, NULL) : dtrain_gradset_wait(set));
        CHECK(all_are(x, (float)size) && all_are(y, 0));
    }
    CHECK_OK(dtrain_gradset_set_accumulation(set, 2));
    write_all(x, 3);
    write_all(y, 4);
    for (int pass = 0; pass < 2; pass++) {
        CHECK_OK(dtrain_gradset_ready(set, 0, NULL));
        CHECK_OK(pass ? dtrain_gradset_ready(set, 1, NULL) : dtrain_gradset_unused(set, 1));
    }
    CHECK_OK(dtrain_gradset_wait_one(set, 0));
    CHECK(all_are(x, 3 * (float)size));
    CHECK_OK(dtrain_gradset_wait(set));
    CHECK(all_are(y, 4 * (float)size));
    double norm;
    CHECK_OK(dtrain_gradset_clip(set, 1e-3, &norm));
    CHECK(fabs(norm - 5 * size * sqrt(1000)) < 1e-3);
    float clipped[2];
    device_read(clipped, x, sizeof clipped);
    CHECK(clipped[0] > 0 && clipped[0] < 1e-3f);
    CHECK_OK(dtrain_gradset_destroy(set));
    CHECK_OK(dtrain_mem_free(memory));
}

static dtrain_status_t brief_step(dtrain_gradset_t *set, int passes, float value)
{
    void *x, *y;
    CHECK_OK(dtrain_gradset_buffer(set, 0, &x));
    CHECK_OK(dtrain_gradset_buffer(set, 1, &y));
    write_all(x, value);
    write_all(y, value);
    for (int pass = 0; pass < passes; pass++) {
        CHECK_OK(dtrain_gradset_ready(set, 1, NULL));
        CHECK_OK(dtrain_gradset_ready(set, 0, NULL));
    }
    dtrain_status_t status = dtrain_gradset_stream_wait(set, NULL);
    CHECK(status != DTRAIN_OK ||
          (all_are(x, value * (float)size) && all_are(y, value * (float)size)));
    return status;
}

/* What differs between ranks is an error on all, and the next step is right. */
static void test_steps_that_differ(void)
{
    dtrain_gradset_t *set = make_set(DTRAIN_DEVICE_CUDA, NULL, DTRAIN_OK);
    CHECK_OK(brief_step(set, 1, 1));
    CHECK_OK(brief_step(set, 1, 2));
    if (rank == 0)
        CHECK_OK(dtrain_gradset_set_accumulation(set, 2));
    dtrain_status_t status = brief_step(set, rank == 0 ? 2 : 1, 3);
    CHECK(size == 1 ? status == DTRAIN_OK : status < 0);
    if (rank == 0)
        CHECK_OK(dtrain_gradset_set_accumulation(set, 1));
    CHECK_OK(brief_step(set, 1, 4));
    CHECK_OK(brief_step(set, 1, 5));
    CHECK_OK(dtrain_gradset_destroy(set));
}

static void test_refused(void)
{
    float host[1000];
    int stream;
    make_set(7, NULL, DTRAIN_ERR_INVALID_ARGUMENT);
    make_set(DTRAIN_DEVICE_CUDA, rank == size - 1 ? host : NULL, DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("parameter 'x': gradient");
    CHECK_ERROR_HAS("the memory is the host's");
    if (size > 1) {
        make_set(rank == 0, NULL, DTRAIN_ERR_MISMATCH);
        CHECK_ERROR_HAS("device is");
        CHECK_ERROR_HAS("host on rank");
        CHECK_ERROR_HAS("GPU on rank");
    }
    dtrain_gradset_t *set = make_set(DTRAIN_DEVICE_CPU, NULL, DTRAIN_OK);
    CHECK_STATUS(dtrain_gradset_ready(set, 0, &stream), DTRAIN_ERR_UNSUPPORTED);
    CHECK_STATUS(dtrain_gradset_stream_wait(set, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_stream_wait(NULL, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_optimizer_stream_step(NULL, 1, NULL, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_gradset_destroy(set));
}

int main(void)
{
    check_begin("test_training", 110);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    test_rules();
    test_codecs();
    test_saves();
    test_missing_and_passes();
    test_steps_that_differ();
    test_refused();
    training_t training;
    const way_t way = {.device = DTRAIN_DEVICE_CUDA, .rule = DTRAIN_RULE_ADAM, .bad_step = -1};
    if (!begin(&training, &way))
        step(&training, 0);
    CHECK_OK(dtrain_shutdown());
    CHECK_STATUS(dtrain_gradset_stream_wait(training.set, NULL), DTRAIN_ERR_NOT_INITIALIZED);
    dtrain_optimizer_destroy(training.optimizer);
    CHECK_OK(dtrain_gradset_destroy(training.set));
    return check_end();
}
