/*
 * lost_rank.c RANK FILE - the rank is killed, and the others wait for its part of an allreduce.
 * Each survivor adds lines to the file: what the allreduce and the next call returned. What they
 * print may be lost, as mpirun ends early.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

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

int main(int argc, char **argv)
{
    float value = 1;
    if (argc != 3 || dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "FAILED: %s\n", dtrain_last_error());
        return 1;
    }
    dtrain_barrier();
    if (dtrain_rank() == strtol(argv[1], NULL, 10))
        raise(SIGKILL);
    dtrain_status_t first =
        dtrain_allreduce("gradient", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    int reported = report(argv[2], "first", first) && report(argv[2], "next", dtrain_barrier());
    dtrain_shutdown();
    return !reported;
}
