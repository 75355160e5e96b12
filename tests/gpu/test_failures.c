/*
 * test_failures.c CASE TEXT FILE - what goes wrong on one rank becomes an error on all, within a
 * bounded time, and dtrain_shutdown comes back. What goes wrong is told by STANDIN_FAULT and the
 * like; here stands what is to become of it. A rank whose checks have all passed adds a line to the
 * file when it ends: where the world is gone MPI is not finalized, which its launcher takes for a
 * failure.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

static const char *survivors; /* the file; NULL: this rank's checks have failed */

/* How every operation is done. */
static dtrain_options_t options = {.struct_size = sizeof options};

static void say_survived(void)
{
    int fd = survivors ? open(survivors, O_WRONLY | O_APPEND) : -1;
    if (fd >= 0 && write(fd, "survived\n", 9) != 9)
        fprintf(stderr, "this rank cannot say that its checks have passed\n");
}

static dtrain_status_t allreduce(const char *name, float *memory, int64_t count)
{
    dtrain_handle_t handle = 0;
    dtrain_tensor_t tensor = device_tensor(name, memory, memory, &count, DTRAIN_DTYPE_F32);
    dtrain_status_t status = dtrain_allreduce_async(&tensor, &options, &handle);
    return status == DTRAIN_OK ? check_finish(handle) : status;
}

/* Allreduces until one fails; its status. */
static dtrain_status_t until_failure(float *memory)
{
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < 20 && status == DTRAIN_OK; i++)
        status = allreduce("step", memory, 1000);
    return status;
}

/* The operation fails on all ranks, and nothing else does: the world lives. */
static void test_refused(const char *text)
{
    float *memory = device_new(4000);
    CHECK(allreduce("first", memory, 1000) < 0);
    CHECK_ERROR_HAS(text);
    CHECK(allreduce("second", memory, 1000) < 0);
    CHECK_ERROR_HAS(text);
    check_works("of the host");
    CHECK_OK(dtrain_shutdown());
}

/* The world ends with the first failure, on all ranks with one status. */
static void test_ends(dtrain_status_t wanted, const char *text)
{
    float *memory = device_new(4000);
    CHECK_STATUS(until_failure(memory), wanted);
    CHECK_ERROR_HAS(text);
    CHECK_STATUS(allreduce("afterwards", memory, 10), wanted);
    dtrain_status_t status = dtrain_shutdown();
    CHECK(status == DTRAIN_OK || status == wanted);
}

/* A process set cannot be made out of the world, which ends by it, with one status on all ranks. */
static void test_split_ends(dtrain_status_t wanted, const char *text)
{
    float *memory = device_new(4000);
    dtrain_pset_t pset;
    const int ranks[] = {0};
    CHECK_OK(allreduce("before", memory, 1000));
    CHECK_STATUS(dtrain_pset_add(ranks, 1, &pset), wanted);
    CHECK_ERROR_HAS(text);
    CHECK_STATUS(allreduce("afterwards", memory, 10), wanted);
    dtrain_status_t status = dtrain_shutdown();
    CHECK(status == DTRAIN_OK || status == wanted);
}

/* What the host does, on a copy that never comes, or never goes back. */
static void test_host_work_ends(const char *text)
{
    dtrain_codec_t *codec = NULL;
    if (strcmp(text, "adasum") == 0)
        options.op = DTRAIN_OP_ADASUM;
    else if (CHECK_OK(dtrain_codec_create(text, &codec)))
        options.codec = codec;
    test_ends(DTRAIN_ERR_TIMEOUT, "did not finish");
    dtrain_codec_destroy(codec);
}

/* A rank is killed in the middle; the others hear of it. */
static void test_kill(void)
{
    float *memory = device_new(4000);
    CHECK_STATUS(until_failure(memory), DTRAIN_ERR_RANK_LOST);
    CHECK_STATUS(dtrain_shutdown(), DTRAIN_ERR_RANK_LOST);
}

/* A gradient set's creation fails on all ranks, when its memory is to become a window. */
static void test_window_of_a_set(dtrain_status_t wanted, const char *text)
{
    static const int64_t count = 1000;
    dtrain_param_t param = {.struct_size = sizeof param,
                            .name = "a",
                            .ndim = 1,
                            .shape = &count,
                            .dtype = DTRAIN_DTYPE_F32};
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .device = DTRAIN_DEVICE_CUDA};
    dtrain_gradset_t *set = NULL;
    CHECK_STATUS(dtrain_gradset_create(&desc, &param, 1, &set), wanted);
    CHECK_ERROR_HAS(text);
    CHECK(set == NULL);
    dtrain_status_t status = dtrain_shutdown();
    CHECK(status == DTRAIN_OK || status == wanted);
}

/* An operation that lasts is waited for in a stream, which comes to an end all the same. */
static void test_stream_after_failure(void)
{
    float *memory = device_new(4000);
    cudaStream_t stream;
    int64_t count = 1000;
    dtrain_handle_t handle = 0;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    dtrain_tensor_t tensor = device_tensor("streamed", memory, memory, &count, DTRAIN_DTYPE_F32);
    tensor.stream = stream;
    options.timeout_ms = 1500;
    CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
    CHECK_OK(dtrain_stream_wait(handle, stream));
    CHECK_STATUS(check_finish(handle), DTRAIN_ERR_TIMEOUT);
    CHECK_STATUS(dtrain_shutdown(), DTRAIN_ERR_TIMEOUT);
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    const char *name = argc == 4 ? argv[1] : "";
    int timeout_ms = strstr(name, "hang") ? 3000 : 20000;
    int device;
    atexit(say_survived);
    check_begin(name, 50);
    if (!CHECK_OK(check_init(timeout_ms)))
        return check_end();
    if (strcmp(name, "no_device") == 0) {
        CHECK_STATUS(dtrain_cuda_device(&device), DTRAIN_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS(argv[2]);
        check_works("of the host");
        CHECK_OK(dtrain_shutdown());
    } else if (strcmp(name, "kill") == 0) {
        test_kill();
    } else if (strcmp(name, "stream_hang") == 0) {
        test_stream_after_failure();
    } else if (strcmp(name, "refused") == 0) {
        test_refused(argv[2]);
    } else if (strcmp(name, "ends") == 0) {
        test_ends(DTRAIN_ERR_COMMUNICATION, argv[2]);
    } else if (strcmp(name, "set_ends") == 0) {
        test_window_of_a_set(DTRAIN_ERR_COMMUNICATION, argv[2]);
    } else if (strcmp(name, "set_hangs") == 0) {
        test_window_of_a_set(DTRAIN_ERR_TIMEOUT, argv[2]);
    } else if (strcmp(name, "split") == 0) {
        test_split_ends(DTRAIN_ERR_COMMUNICATION, argv[2]);
    } else if (strcmp(name, "split_hang") == 0) {
        test_split_ends(DTRAIN_ERR_TIMEOUT, argv[2]);
    } else if (strcmp(name, "split_kill") == 0) {
        test_split_ends(DTRAIN_ERR_RANK_LOST, argv[2]);
    } else if (strcmp(name, "host_hang") == 0) {
        test_host_work_ends(argv[2]);
    } else if (strcmp(name, "hang") == 0) {
        test_ends(DTRAIN_ERR_TIMEOUT, argv[2]);
    } else {
        fprintf(stderr, "there is no case '%s'\n", name);
        return 2;
    }
    int failed = check_end();
    survivors = failed ? NULL : argv[3];
    return failed;
}
