/*
 * A rank is lost while a thread is inside a library that needs it. The library may wait for it for
 * ever: the other threads of the process get their error all the same. Or fail: the detector is
 * given a moment to say why. Rank 0's backend plays that library, and its detector has one
 * connection, over which the test tells of the loss.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/detect/detect_state.h"
#include "engine_world.h"

typedef struct library {
    dt_backend_t base;
    dt_backend_ops_t ops;
    dt_backend_t *inner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_inside; /* [lock] a thread is */
    int may_go;    /* [lock] */
    int is_given_up;
    int fails; /* [const] 1: it does not wait but fails; 2: and the loss is told just then */
    int end;   /* of the connection to the detector */
    dtrain_handle_t handle;
    dtrain_status_t status; /* of the thread that got stuck, when it came back */
    engine_rank_t *rank;
} library_t;

static library_t library;

static dtrain_status_t library_start(dt_backend_t *backend, const dt_collective_t *collective,
                                     dt_task_t **task)
{
    dt_backend_t *inner = ((library_t *)backend)->inner;
    return inner->ops->start(inner, collective, task);
}

static void tell_of_loss(void)
{
    uint8_t frame[DT_DETECT_FRAME_MAX];
    dt_detect_message_t message = {.type = DT_DETECT_END, .rank = 1};
    message.status = DTRAIN_ERR_RANK_LOST;
    message.text = "rank 1 is lost";
    message.text_length = strlen(message.text);
    size_t length = dt_detect_encode(&message, frame);
    ssize_t sent = send(library.end, frame, length, 0);
    (void)sent; /* the test ends in its time limit then */
}

static dtrain_status_t library_progress(dt_backend_t *backend, dt_task_t *task)
{
    library_t *self = (library_t *)backend;
    (void)task;
    if (self->fails == 2)
        tell_of_loss();
    if (self->fails)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "a receive failed");
    pthread_mutex_lock(&self->lock);
    self->is_inside = 1;
    pthread_cond_broadcast(&self->changed);
    while (!self->may_go)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    return DTRAIN_IN_PROGRESS;
}

static void library_release(dt_backend_t *backend, dt_task_t *task)
{
    dt_backend_t *inner = ((library_t *)backend)->inner;
    inner->ops->release(inner, task);
}

static void library_destroy(dt_backend_t *backend, int clean)
{
    dt_backend_t *inner = ((library_t *)backend)->inner;
    inner->ops->destroy(inner, clean);
}

static void put_detector(dt_world_t *world)
{
    int pair[2];
    dt_detect_link_t *link = dt_calloc(1, sizeof *link);
    dt_detect_watch_t *watch = dt_calloc(1, sizeof *watch);
    dt_detector_settings_t settings = {
        .heartbeat_ns = 50 * DT_NS_PER_MS, .timeout_ns = DT_NS_PER_S, .clock = dt_clock_system()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    dt_detect_link_open(link, pair[1], 1, settings.timeout_ns, dt_now_ns());
    assert_int_equal(
        dt_detector_make(&world->topology, &settings, link, 1, watch, 0, &world->detector),
        DTRAIN_OK);
    library.end = pair[0];
}

static void prepare(engine_rank_t *self, dt_world_t *world)
{
    if (self->rank != 0)
        return;
    library.rank = self;
    library.ops = *world->backend->ops;
    library.ops.linger = NULL;
    library.ops.post = NULL;
    library.ops.take = NULL;
    library.ops.start = library_start;
    library.ops.progress = library_progress;
    library.ops.release = library_release;
    library.ops.destroy = library_destroy;
    library.base = *world->backend;
    library.base.ops = &library.ops;
    library.inner = world->backend;
    world->backend = &library.base;
    put_detector(world);
}

static void *wait_for_it(void *argument)
{
    library_t *self = argument;
    self->status = dt_runtime_wait(self->rank->runtime, self->handle, -1);
    return NULL;
}

static void be_inside(engine_rank_t *self, pthread_t *thread)
{
    static float values[1000];
    engine_op_t op = {.name = "first", .in = values, .out = values, .count = 1000};
    ENGINE_OK(self, engine_submit(self, &op, &library.handle));
    pthread_create(thread, NULL, wait_for_it, &library);
    pthread_mutex_lock(&library.lock);
    while (!library.is_inside)
        pthread_cond_wait(&library.changed, &library.lock);
    pthread_mutex_unlock(&library.lock);
}

static void come_back(pthread_t thread)
{
    pthread_mutex_lock(&library.lock);
    library.may_go = 1;
    pthread_cond_broadcast(&library.changed);
    pthread_mutex_unlock(&library.lock);
    pthread_join(thread, NULL);
}

static void be_stranded(engine_rank_t *self)
{
    static float values[1000];
    engine_op_t first = {.name = "first", .in = values, .out = values, .count = 1000};
    engine_op_t second = {.name = "second", .in = values, .out = values, .count = 1000};
    self->end = DTRAIN_ERR_RANK_LOST;
    engine_meet(self);
    if (self->rank != 0) { /* goes on without rank 0's part until that has left */
        ENGINE_STATUS(self, engine_do(self, &first), DTRAIN_ERR_RANK_LOST);
        return;
    }
    pthread_t thread;
    char text[DT_ERROR_MAX];
    int done = 0;
    be_inside(self, &thread);
    tell_of_loss();
    /* This thread waits for what the stuck one was to do. */
    ENGINE_STATUS(self, dt_runtime_wait(self->runtime, library.handle, -1), DTRAIN_ERR_RANK_LOST);
    ENGINE_TEXT(self, dt_last_error(), "rank 1 is lost");
    const dtrain_handle_t any[] = {0, library.handle};
    int index = 0;
    ENGINE_STATUS(self, dt_runtime_wait_any(self->runtime, any, 2, &index), DTRAIN_ERR_RANK_LOST);
    ENGINE_CHECK(self, index == 1);
    ENGINE_OK(self, dt_runtime_poll(self->runtime, library.handle, &done));
    ENGINE_CHECK(self, done);
    ENGINE_OK(self, dt_runtime_handle_error(self->runtime, library.handle, text, sizeof text));
    ENGINE_TEXT(self, text, "rank 1 is lost");
    ENGINE_OK(self, dt_runtime_release(self->runtime, library.handle));
    ENGINE_STATUS(self, engine_do(self, &second), DTRAIN_ERR_RANK_LOST);
    ENGINE_STATUS(self, engine_shutdown(self), DTRAIN_ERR_RANK_LOST);
    ENGINE_CHECK(self, dt_runtime_is_stranded(self->runtime));
    come_back(thread);
    atomic_store(&self->runtime->is_stranded,
                 0); /* nobody is inside, so it can be freed after all */
    ENGINE_CHECK(self, library.status == DTRAIN_ERR_RANK_LOST);
}

static void test_engine_stranded_other_threads_get_their_error(void **state)
{
    (void)state;
    pthread_mutex_init(&library.lock, NULL);
    pthread_cond_init(&library.changed, NULL);
    engine_run_prepared(2, NULL, prepare, be_stranded, NULL);
    close(library.end);
}

static void give_up(void *context)
{
    (void)context;
    library.is_given_up = 1;
}

static void prepare_own_thread(engine_rank_t *self, dt_world_t *world)
{
    prepare(self, world);
    world->may_hang = 1;
    world->give_up = give_up;
}

static void *tell_when_inside(void *argument)
{
    library_t *self = argument;
    pthread_mutex_lock(&self->lock);
    while (!self->is_inside)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    tell_of_loss();
    return NULL;
}

/* A program with one thread, which waits. */
static void wait_alone(engine_rank_t *self)
{
    static float values[2][1000];
    engine_op_t op = {
        .name = "first", .in = values[self->rank], .out = values[self->rank], .count = 1000};
    self->end = DTRAIN_ERR_RANK_LOST;
    engine_meet(self);
    if (self->rank != 0) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_RANK_LOST);
        return;
    }
    pthread_t teller;
    pthread_create(&teller, NULL, tell_when_inside, &library);
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_RANK_LOST);
    ENGINE_TEXT(self, dt_last_error(), "rank 1 is lost");
    ENGINE_CHECK(self, library.is_given_up);
    ENGINE_STATUS(self, engine_shutdown(self), DTRAIN_ERR_RANK_LOST);
    come_back(teller);
    atomic_store(&self->runtime->is_stranded, 0); /* so that it is freed, when the thread is out */
}

static void test_engine_stranded_caller_of_a_library_that_may_hang_gets_its_error(void **state)
{
    (void)state;
    library.may_go = library.is_inside = 0;
    engine_run_prepared(2, NULL, prepare_own_thread, wait_alone, NULL);
    close(library.end);
}

/* Of both ranks, with what rank 0 finds, or hears of. */
static void fail_with(engine_rank_t *self, dtrain_status_t status, const char *text)
{
    static float values[2][1000];
    engine_op_t op = {
        .name = "first", .in = values[self->rank], .out = values[self->rank], .count = 1000};
    self->end = status;
    engine_meet(self);
    ENGINE_STATUS(self, engine_do(self, &op), status);
    ENGINE_TEXT(self, dt_last_error(), text);
}

static void fail_alone(engine_rank_t *self)
{
    fail_with(self, DTRAIN_ERR_COMMUNICATION, "rank 0: a receive failed");
}

static void fail_with_a_lost_rank(engine_rank_t *self)
{
    fail_with(self, DTRAIN_ERR_RANK_LOST, "rank 1 is lost");
}

static void test_engine_failed_transfer_that_nobody_explains_ends_the_world(void **state)
{
    (void)state;
    library.fails = 1;
    engine_run_prepared(2, NULL, prepare, fail_alone, NULL);
    close(library.end);
}

static void test_engine_failed_transfer_is_told_as_the_lost_rank_behind_it(void **state)
{
    (void)state;
    library.fails = 2;
    engine_run_prepared(2, NULL, prepare, fail_with_a_lost_rank, NULL);
    close(library.end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_stranded_other_threads_get_their_error),
        cmocka_unit_test(test_engine_stranded_caller_of_a_library_that_may_hang_gets_its_error),
        cmocka_unit_test(test_engine_failed_transfer_that_nobody_explains_ends_the_world),
        cmocka_unit_test(test_engine_failed_transfer_is_told_as_the_lost_rank_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
