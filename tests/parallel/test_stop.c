/*
 * SIGTERM to one rank: all leave after the same step, each by its own way. The handler is the
 * program's, which only sets a flag.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#define STEPS_MAX 100000
#define STEP_OF_SIGNAL 37

static volatile sig_atomic_t was_told;

static void note(int number)
{
    (void)number;
    was_told = 1;
}

/* Trains until any rank is told to stop. Returns how many steps that were. */
static int train(int who)
{
    float gradient[64];
    int stop = 0, step = 0;
    while (!stop && step < STEPS_MAX) {
        for (int i = 0; i < 64; i++)
            gradient[i] = (float)step;
        CHECK_OK(dtrain_allreduce("gradient", gradient, gradient, 64, DTRAIN_DTYPE_F32,
                                  DTRAIN_OP_AVERAGE));
        CHECK(gradient[63] == (float)step);
        if (++step == STEP_OF_SIGNAL && dtrain_rank() == who)
            raise(SIGTERM);
        if (dtrain_agree_stop(was_told, &stop) != DTRAIN_OK)
            break;
    }
    return step;
}

int main(void)
{
    struct sigaction mine = {.sa_handler = note}, now;
    check_begin("test_stop", 50);
    sigaction(SIGTERM, &mine, NULL);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    int who = dtrain_size() - 1;
    CHECK(train(who) == STEP_OF_SIGNAL);
    CHECK(was_told == (dtrain_rank() == who));
    sigaction(SIGTERM, NULL, &now);
    CHECK(now.sa_handler == note);
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
