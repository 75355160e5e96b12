/* A name that one rank spells in another way: before the deadline of 3 s a report says who waits
 * for whom, and where each rank stands. All settings are as they are by default. */
#include <stdio.h>

#include "check.h"

static int rank, size;

static void check_reported(int who, const char *position)
{
    char line[256];
    snprintf(line, sizeof line, "rank %d on host ", who);
    CHECK(check_log_wait(line));
    CHECK(check_log_wait(position));
}

/* The last rank submits x, all others x_1. */
static void check_other_name(void)
{
    float values[3] = {0};
    dtrain_handle_t handle;
    int is_last = rank == size - 1;
    CHECK_OK(check_submit(is_last ? "x" : "x_1", values, 3, 3000, &handle));
    CHECK_STATUS(check_finish(handle), DTRAIN_ERR_TIMEOUT);
    if (rank == 0) {
        char line[128];
        snprintf(line, sizeof line, "for rank %d (of %d); submitted by rank", size - 1, size);
        CHECK(check_log_has("allreduce 'x_1' float32 [3] waits since ") && check_log_has(line));
        CHECK(check_log_has("allreduce 'x' float32 [3] waits since "));
        check_reported(0, "last submitted allreduce 'x_1' ");
        check_reported(size - 1, "last submitted allreduce 'x' ");
        CHECK(check_log_has("agreed allreduce 'before' ") &&
              check_log_has("finished allreduce 'before' "));
    }
}

int main(void)
{
    check_begin("test_stall", 50);
    check_log_start();
    if (!CHECK_OK(dtrain_init(NULL)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    check_works("before");
    check_other_name();
    CHECK_OK(dtrain_barrier());
    check_works("after");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
