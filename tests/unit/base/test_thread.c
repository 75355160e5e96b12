#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"

typedef struct own {
    pthread_mutex_t held; /* the thread ends once it has had it */
    sigset_t blocked;
    char name[16];
} own_t;

static void *thread_main(void *argument)
{
    own_t *own = argument;
    pthread_mutex_lock(&own->held);
    pthread_sigmask(SIG_BLOCK, NULL, &own->blocked);
    pthread_getname_np(pthread_self(), own->name, sizeof own->name);
    pthread_mutex_unlock(&own->held);
    return NULL;
}

static void start(own_t *own, pthread_t *thread)
{
    *own = (own_t){.held = PTHREAD_MUTEX_INITIALIZER};
    pthread_mutex_lock(&own->held);
    assert_int_equal(dt_thread_start(thread, "dtrain-test", thread_main, own), 0);
}

static void test_thread_of_the_library_has_a_name_and_blocks_signals(void **state)
{
    (void)state;
    own_t own;
    pthread_t thread;
    sigset_t blocked;
    start(&own, &thread);
    pthread_mutex_unlock(&own.held);
    assert_int_equal(dt_thread_join(thread, DT_NEVER), 0);
    assert_string_equal(own.name, "dtrain-test");
    assert_true(sigismember(&own.blocked, SIGTERM) && sigismember(&own.blocked, SIGUSR1));
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    assert_false(sigismember(&blocked, SIGTERM)); /* the starter's are as before */
}

static void test_thread_that_runs_is_not_waited_for_beyond_the_limit(void **state)
{
    (void)state;
    own_t own;
    pthread_t thread;
    start(&own, &thread);
    int64_t begin = dt_now_ns();
    assert_int_equal(dt_thread_join(thread, 30 * DT_NS_PER_MS), -1);
    assert_true(dt_now_ns() - begin >= 20 * DT_NS_PER_MS);
    pthread_mutex_unlock(&own.held);
    assert_int_equal(dt_thread_join(thread, 60 * DT_NS_PER_S), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_of_the_library_has_a_name_and_blocks_signals),
        cmocka_unit_test(test_thread_that_runs_is_not_waited_for_beyond_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
