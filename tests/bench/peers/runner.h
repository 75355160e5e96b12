/* runner.h - what every peer's program measures, in the way that dtrain-bench measures ours.
 *
 * A peer gives two operations and calls bench_run(). Measured are sizes ("65536") and gradient
 * sets ("set:FILE", a count of floats a line) of fp32, summed in place. A round fills the buffers,
 * waits for all ranks and takes the time; the slowest rank's counts. Short operations are timed by
 * the dozen, with the filling between them inside the time, as dtrain-bench does.
 */
#ifndef DTRAIN_TESTS_BENCH_RUNNER_H
#define DTRAIN_TESTS_BENCH_RUNNER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_peer {
    int rank, size;
    void *self;
    /* Sums in place over all ranks. 0, or -1 when it failed. */
    int (*sum)(void *self, float *data, size_t count);
    /* The greatest of all ranks' values, in place; also the barrier before each round. */
    int (*greatest)(void *self, double *data, size_t count);
} bench_peer_t;

/* Runs the cases named by argv[1] and on. Rank 0 prints one JSON object a line:
 * {"case", "mode", "median_us", "min_us", "rounds"}; mode is "" for sizes, for sets "each" (a call
 * a tensor) and "packed" (copied into one buffer, one call, copied back). 0, or 1 after an error.
 */
int bench_run(const bench_peer_t *peer, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
