/*
 * lost_rank.c RANK before|during FILE - the rank is killed, before it submits an allreduce that
 * the others wait for or while it moves data. Each survivor adds lines to the file: what the
 * allreduce and the next call returned. What they print may be lost, as mpirun ends early.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

#define COUNT (16 << 20)

/* 1 when all is written. */
static int report(const char *path, const char *what, dtrain_status_t status)
{
    char line[2048];
    int length = snprintf(line, sizeof line, "rank %d, %s: %d, %s\n", dtrain_rank(), what,
                          (int)status, dtrain_last_error());
    int file = open(path, O_WRONLY | O_APPEND);
    ssize_t written = file >= 0 ? write(file, line, (size_t)length) : -1;
    if (file >= 0)
        close(file);
    return written == length;
}

static void end_rank(float *values, int is_before)
{
    int64_t count = COUNT;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = "gradient",
                              .in = values,
                              .out = values,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_handle_t handle;
    if (!is_before && dtrain_allreduce_async(&tensor, NULL, &handle) == DTRAIN_OK)
        dtrain_wait_for(handle, 20);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    float *values = calloc(COUNT, sizeof *values);
    if (argc != 4 || !values || dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "FAILED: %s\n", dtrain_last_error());
        return 1;
    }
    /* Open MPI connects when data first moves, and ends a process whose peer is dead by then. */
    dtrain_allreduce("warm up", values, values, COUNT, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    dtrain_barrier();
    if (dtrain_rank() == atoi(argv[1]))
        end_rank(values, strcmp(argv[2], "before") == 0);
    dtrain_status_t first =
        dtrain_allreduce("gradient", values, values, COUNT, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    int reported = report(argv[3], "first", first) && report(argv[3], "next", dtrain_barrier());
    dtrain_shutdown();
    free(values);
    return !reported;
}
