/* What stream capture takes and forbids. It shows that the stand-in is as strict as CUDA's rules
 * are, for whoever captures a stream beside the library; on a GPU, that it is so in fact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)
#define COUNT 16

typedef struct fixture {
    cudaStream_t stream, other;
    uint8_t *memory;
} fixture_t;

static int make_fixture(void **state)
{
    static fixture_t fixture;
    CUDA_OK(cudaStreamCreateWithFlags(&fixture.stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&fixture.other, cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc((void **)&fixture.memory, COUNT));
    CUDA_OK(cudaMemset(fixture.memory, 1, COUNT));
    CUDA_OK(cudaDeviceSynchronize());
    *state = &fixture;
    return 0;
}

static int free_fixture(void **state)
{
    fixture_t *fixture = *state;
    CUDA_OK(cudaStreamDestroy(fixture->stream));
    CUDA_OK(cudaStreamDestroy(fixture->other));
    CUDA_OK(cudaFree(fixture->memory));
    return 0;
}

static uint8_t first_byte(const fixture_t *fixture)
{
    uint8_t byte;
    CUDA_OK(cudaMemcpy(&byte, fixture->memory, 1, cudaMemcpyDeviceToHost));
    return byte;
}

static void begin(const fixture_t *fixture, enum cudaStreamCaptureMode mode)
{
    CUDA_OK(cudaStreamBeginCapture(fixture->stream, mode));
    CUDA_OK(cudaMemsetAsync(fixture->memory, 2, COUNT, fixture->stream));
}

/* The capture was spoilt, and the thread's error is known. */
static void expect_invalid(const fixture_t *fixture)
{
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(fixture->stream, &graph),
                     cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    assert_int_equal(first_byte(fixture), 1);
}

static void test_capture_does_nothing_until_its_graph_is_launched(void **state)
{
    const fixture_t *fixture = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin(fixture, cudaStreamCaptureModeThreadLocal);
    CUDA_OK(cudaMemsetAsync(fixture->memory, 3, 1, fixture->stream));
    CUDA_OK(cudaStreamEndCapture(fixture->stream, &graph));
    CUDA_OK(cudaStreamSynchronize(fixture->stream));
    assert_int_equal(first_byte(fixture), 1);
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        CUDA_OK(cudaGraphLaunch(exec, fixture->stream));
        CUDA_OK(cudaStreamSynchronize(fixture->stream));
        assert_int_equal(first_byte(fixture), 3); /* in the order of the capture */
        CUDA_OK(cudaMemset(fixture->memory, 1, COUNT));
        CUDA_OK(cudaDeviceSynchronize());
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
}

static void test_capture_is_spoilt_by_a_wait_for_its_stream(void **state)
{
    const fixture_t *fixture = *state;
    begin(fixture, cudaStreamCaptureModeThreadLocal);
    assert_int_equal(cudaStreamSynchronize(fixture->stream), cudaErrorStreamCaptureUnsupported);
    expect_invalid(fixture);
}

static void test_capture_is_spoilt_by_an_allocation(void **state)
{
    const fixture_t *fixture = *state;
    void *memory;
    begin(fixture, cudaStreamCaptureModeGlobal);
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    expect_invalid(fixture);
}

static void test_capture_lets_a_thread_allocate_that_says_it_knows(void **state)
{
    const fixture_t *fixture = *state;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaGraph_t graph;
    void *memory;
    begin(fixture, cudaStreamCaptureModeGlobal);
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CUDA_OK(cudaMalloc(&memory, 1));
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CUDA_OK(cudaStreamEndCapture(fixture->stream, &graph));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaFree(memory));
}

static void test_capture_has_no_events_from_outside(void **state)
{
    const fixture_t *fixture = *state;
    cudaEvent_t event;
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_OK(cudaEventRecord(event, fixture->other));
    begin(fixture, cudaStreamCaptureModeThreadLocal);
    assert_int_equal(cudaStreamWaitEvent(fixture->stream, event, 0),
                     cudaErrorStreamCaptureIsolation);
    expect_invalid(fixture);
    CUDA_OK(cudaEventDestroy(event));
}

static void test_capture_keeps_its_events_to_itself(void **state)
{
    const fixture_t *fixture = *state;
    cudaEvent_t event;
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    begin(fixture, cudaStreamCaptureModeRelaxed);
    CUDA_OK(cudaEventRecord(event, fixture->stream));
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    cudaGraph_t graph = NULL;
    (void)cudaStreamEndCapture(fixture->stream, &graph); /* whether it is spoilt is not told */
    (void)cudaGetLastError();
    if (graph)
        CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(event));
}

static void test_event_times_need_both_ends(void **state)
{
    const fixture_t *fixture = *state;
    cudaEvent_t begin_event, end, untimed;
    float ms;
    CUDA_OK(cudaEventCreate(&begin_event));
    CUDA_OK(cudaEventCreate(&end));
    CUDA_OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CUDA_OK(cudaEventRecord(begin_event, fixture->stream));
    assert_int_equal(cudaEventElapsedTime(&ms, begin_event, end), cudaErrorInvalidResourceHandle);
    CUDA_OK(cudaEventRecord(untimed, fixture->stream));
    CUDA_OK(cudaEventRecord(end, fixture->stream));
    CUDA_OK(cudaEventSynchronize(end));
    assert_int_equal(cudaEventElapsedTime(&ms, begin_event, untimed),
                     cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    CUDA_OK(cudaEventElapsedTime(&ms, begin_event, end));
    assert_true(ms >= 0);
    CUDA_OK(cudaEventDestroy(begin_event));
    CUDA_OK(cudaEventDestroy(end));
    CUDA_OK(cudaEventDestroy(untimed));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)
    const struct CMUnitTest tests[] = {
        CASE(test_capture_does_nothing_until_its_graph_is_launched),
        CASE(test_capture_is_spoilt_by_a_wait_for_its_stream),
        CASE(test_capture_is_spoilt_by_an_allocation),
        CASE(test_capture_lets_a_thread_allocate_that_says_it_knows),
        CASE(test_capture_has_no_events_from_outside),
        CASE(test_capture_keeps_its_events_to_itself),
        CASE(test_event_times_need_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
