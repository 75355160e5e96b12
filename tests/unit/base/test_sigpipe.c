#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sigpipe.h"

static volatile sig_atomic_t caught;

static void on_sigpipe(int number)
{
    (void)number;
    caught++;
}

/* Writes to a socket whose peer is gone, as a library would that knows nothing of MSG_NOSIGNAL. */
static void write_to_nobody(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    assert_int_equal(write(pair[0], "x", 1), -1);
    close(pair[0]);
}

static int set_up(void **state)
{
    (void)state;
    caught = 0;
    signal(SIGPIPE, on_sigpipe);
    return 0;
}

static void test_sigpipe_of_a_held_write_is_dropped(void **state)
{
    dt_sigpipe_t held;
    (void)state;
    dt_sigpipe_hold(&held);
    write_to_nobody();
    write_to_nobody();
    dt_sigpipe_release(&held);
    assert_int_equal(caught, 0);
}

static void test_sigpipe_after_release_reaches_the_application(void **state)
{
    dt_sigpipe_t held;
    (void)state;
    dt_sigpipe_hold(&held);
    dt_sigpipe_release(&held);
    write_to_nobody();
    assert_int_equal(caught, 1);
}

static void test_sigpipe_that_was_blocked_and_pending_before_stays(void **state)
{
    dt_sigpipe_t held;
    sigset_t set, pending;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    write_to_nobody();
    dt_sigpipe_hold(&held);
    dt_sigpipe_release(&held);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGPIPE));
    assert_int_equal(caught, 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    assert_int_equal(caught, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sigpipe_of_a_held_write_is_dropped, set_up),
        cmocka_unit_test_setup(test_sigpipe_after_release_reaches_the_application, set_up),
        cmocka_unit_test_setup(test_sigpipe_that_was_blocked_and_pending_before_stays, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
