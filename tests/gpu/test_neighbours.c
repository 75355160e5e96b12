/* test_neighbours.c - what else a program does with CUDA: it captures streams into graphs, and its
 * threads use devices. The library is not in its way. */
#include <dlfcn.h>
#include <stdio.h>

#include "check.h"
#include "device.h"

#define COUNT 1000

static dtrain_status_t submit(const char *name, float *memory, void *stream,
                              dtrain_handle_t *handle)
{
    int64_t count = COUNT;
    dtrain_tensor_t tensor = device_tensor(name, memory, memory, &count, DTRAIN_DTYPE_F32);
    tensor.stream = stream;
    return dtrain_allreduce_async(&tensor, NULL, handle);
}

static void allreduce(const char *name, float *memory, void *stream)
{
    dtrain_handle_t handle = 0;
    if (CHECK_OK(submit(name, memory, stream, &handle)))
        CHECK_OK(check_finish(handle));
}

/* Operations are submitted, run and end while another stream is captured in the mode in which that
 * forbids most of CUDA's calls to all threads. */
static void test_capture_goes_on_beside_operations(float *memory, cudaStream_t stream)
{
    cudaStream_t captured;
    cudaGraph_t graph = NULL;
    float *other = device_new(COUNT * sizeof *other);
    CUDA_OK(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 5; i++) {
        CUDA_OK(cudaMemsetAsync(other, 0, COUNT * sizeof *other, captured));
        allreduce("beside", memory, stream);
    }
    CUDA_OK(cudaStreamEndCapture(captured, &graph));
    CHECK(graph != NULL);
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(captured));
    CHECK_OK(dtrain_mem_free(other));
}

/* In a stream that is being captured an operation is refused, as is a wait for one, and the capture
 * is none the worse. */
static void test_captured_stream_is_refused(float *memory, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    dtrain_handle_t handle = 0, before = 0;
    CHECK_OK(submit("before", memory, stream, &before));
    CHECK_OK(dtrain_stream_wait(before, stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_STATUS(submit("captured", memory, stream, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("captured into a graph");
    CHECK_STATUS(dtrain_stream_wait(before, stream), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("captured into a graph");
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphDestroy(graph));
    CHECK_OK(check_finish(before));
    allreduce("afterwards", memory, stream);
}

typedef int (*get_state_fn_t)(int device, unsigned *flags, int *is_active);

static int is_in_use(int device)
{
    unsigned flags;
    int is_active = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    get_state_fn_t get_state = NULL;
    if (driver)
        *(void **)&get_state = dlsym(driver, "cuDevicePrimaryCtxGetState");
    if (CHECK(get_state != NULL))
        CHECK(get_state(device, &flags, &is_active) == 0);
    return is_active;
}

/* The threads of a rank make contexts on its GPU alone. One that the program uses stays current. */
static void test_other_devices_are_left_alone(int own)
{
    int count = 0, current = -1;
    CUDA_OK(cudaGetDeviceCount(&count));
    for (int device = 0; device < count; device++)
        CHECK(is_in_use(device) == (device == own));
    for (int device = 0; device < count; device++) {
        CUDA_OK(cudaSetDevice(device));
        float *memory = device_new(sizeof *memory);
        CUDA_OK(cudaGetDevice(&current));
        CHECK(current == device);
        CHECK_OK(dtrain_mem_free(memory));
    }
    CUDA_OK(cudaSetDevice(own));
}

int main(void)
{
    int device = -1;
    cudaStream_t stream;
    check_begin("neighbours", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    CHECK_OK(dtrain_cuda_device(&device));
    float *memory = device_new(COUNT * sizeof *memory);
    allreduce("first", memory, NULL);
    test_other_devices_are_left_alone(device);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_capture_goes_on_beside_operations(memory, stream);
    test_captured_stream_is_refused(memory, stream);
    CHECK_OK(dtrain_mem_free(memory));
    CHECK_OK(dtrain_shutdown());
    CUDA_OK(cudaStreamDestroy(stream));
    return check_end();
}
