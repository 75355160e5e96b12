/*
 * The application's signals stay its own: what it does on SIGTERM and SIGINT, what it ignores and
 * blocks, is the same after dtrain_init, while it waits and after dtrain_shutdown.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* Others are for MPI to change: SIGSEGV, to show where a program crashed; with MPICH SIGUSR1, by
 * which its launcher tells that a process has failed. */
static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR2, SIGALRM, SIGCHLD};
#define NUM ((int)(sizeof numbers / sizeof numbers[0]))

static volatile sig_atomic_t taken[NSIG];

static void take(int number)
{
    taken[number]++;
}

static void choose_actions(void)
{
    for (int i = 0; i < NUM; i++) {
        struct sigaction action = {.sa_handler = i % 2 ? SIG_IGN : take};
        sigemptyset(&action.sa_mask);
        CHECK(sigaction(numbers[i], &action, NULL) == 0);
    }
}

static void check_actions(const sigset_t *mask)
{
    sigset_t now;
    for (int i = 0; i < NUM; i++) {
        struct sigaction action;
        CHECK(sigaction(numbers[i], NULL, &action) == 0);
        CHECK(action.sa_handler == (i % 2 ? SIG_IGN : take));
    }
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
    for (int number = 1; number < NSIG; number++)
        CHECK(sigismember(&now, number) == sigismember(mask, number));
}

static void *signal_later(void *argument)
{
    const struct timespec moment = {.tv_nsec = 50000000};
    (void)argument;
    for (int i = 0; i < 3; i++) {
        nanosleep(&moment, NULL);
        kill(getpid(), SIGTERM);
    }
    return NULL;
}

/* While rank 0 and the others wait for the last one, SIGTERM comes to each of them. */
static void be_signalled_while_waiting(void)
{
    const struct timespec late = {.tv_nsec = 300000000};
    pthread_t thread;
    int is_last = dtrain_rank() == dtrain_size() - 1;
    taken[SIGTERM] = 0;
    pthread_create(&thread, NULL, signal_later, NULL);
    if (is_last) {
        pthread_join(thread, NULL);
        nanosleep(&late, NULL);
    }
    check_works("late");
    if (!is_last)
        pthread_join(thread, NULL);
    CHECK(taken[SIGTERM] == 3);
}

int main(void)
{
    sigset_t mask;
    check_begin("test_signals", 30);
    choose_actions();
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &mask, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    check_actions(&mask);
    for (int i = 0; i < 5; i++)
        check_works("work");
    check_actions(&mask);
    be_signalled_while_waiting();
    CHECK_OK(dtrain_shutdown());
    check_actions(&mask);
    return check_end();
}
