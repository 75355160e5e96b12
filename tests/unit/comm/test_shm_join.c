/* How the ranks of a node come to see each other's heaps, and what they are told when they do not.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shm/shm_packet.h"
#include "comm/shm/shm_segment.h"
#include "comm/sock/sock_meet.h"
#include "shm_world.h"

#define RANKS_MAX 6
#define PATIENCE_NS (20 * DT_NS_PER_S)

static const dt_sock_meanwhile_t idle = {0};

/* ---- A system that refuses --------------------------------------------------------------- */

/* Calls of memfd_create until one fails; negative: none does. Ranks are threads here. */
static _Atomic int calls_left = -1;
static _Atomic int refusal = ENOSYS;

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (atomic_load(&calls_left) >= 0 && atomic_fetch_sub(&calls_left, 1) <= 0) {
        atomic_store(&calls_left, 0);
        errno = atomic_load(&refusal);
        return -1;
    }
    return __real_memfd_create(name, flags);
}

/* ---- Ranks ------------------------------------------------------------------------------- */

typedef struct joiner {
    pthread_t thread;
    dt_sock_address_t address;
    int rank, size;
    dt_shm_node_t *node;
    dtrain_status_t status;
    char error[DT_ERROR_MAX];
} joiner_t;

static void *joiner_main(void *context)
{
    joiner_t *self = context;
    self->status = dt_shm_connect(&self->address, self->rank, self->size, dt_now_ns() + PATIENCE_NS,
                                  idle, &self->node);
    snprintf(self->error, sizeof self->error, "%s", dt_last_error());
    return NULL;
}

static void start(joiner_t *joiner, const dt_sock_address_t *address, int rank, int size)
{
    *joiner = (joiner_t){.address = *address, .rank = rank, .size = size};
    assert_int_equal(pthread_create(&joiner->thread, NULL, joiner_main, joiner), 0);
}

static void open_listener(dt_sock_address_t *address, dt_sock_listener_t **listener)
{
    assert_int_equal(dt_sock_listen(0, "", address, listener), DTRAIN_OK);
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int count_maps(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:dtrain") != NULL;
    fclose(maps);
    return count;
}

static uint32_t *word_of(const dt_shm_node_t *node, int rank)
{
    return (uint32_t *)(void *)dt_shm_mapping_heap(node->mapping, rank);
}

/* Everyone's word in everyone's heap is seen by all. */
static void assert_heaps_are_shared(dt_shm_node_t **nodes, int size)
{
    for (int writer = 0; writer < size; writer++) {
        for (int owner = 0; owner < size; owner++)
            word_of(nodes[writer], owner)[writer] = (uint32_t)(100 * writer + owner);
    }
    for (int reader = 0; reader < size; reader++) {
        for (int writer = 0; writer < size; writer++) {
            for (int owner = 0; owner < size; owner++)
                assert_int_equal(word_of(nodes[reader], owner)[writer], 100 * writer + owner);
        }
    }
}

static void test_shm_join_of_any_size_shares_all_heaps(void **state)
{
    (void)state;
    int descriptors = count_descriptors();
    for (int size = 1; size <= RANKS_MAX; size++) {
        dt_sock_address_t address;
        dt_sock_listener_t *listener;
        joiner_t joiners[RANKS_MAX];
        dt_shm_node_t *nodes[RANKS_MAX];
        open_listener(&address, &listener);
        for (int rank = 1; rank < size; rank++)
            start(&joiners[rank], &address, rank, size);
        assert_int_equal(dt_shm_accept(listener, size, dt_now_ns() + PATIENCE_NS, idle, &nodes[0]),
                         DTRAIN_OK);
        for (int rank = 1; rank < size; rank++) {
            pthread_join(joiners[rank].thread, NULL);
            assert_int_equal(joiners[rank].status, DTRAIN_OK);
            nodes[rank] = joiners[rank].node;
        }
        assert_int_equal(count_descriptors(), descriptors);
        assert_heaps_are_shared(nodes, size);
        for (int rank = 0; rank < size; rank++)
            dt_shm_node_free(nodes[rank]);
        assert_int_equal(count_maps(), 0);
    }
}

/* ---- Processes, some of which have limits ------------------------------------------------ */

/* In a process of its own: joins, reduces one number, and ends with the status. */
static void be_rank(const dt_sock_address_t *address, int rank, int size, int64_t file_limit)
{
    struct rlimit limit = {(rlim_t)file_limit, (rlim_t)file_limit};
    dt_shm_node_t *node;
    dt_backend_t *backend;
    if (file_limit > 0)
        setrlimit(RLIMIT_FSIZE, &limit);
    int64_t deadline_ns = dt_now_ns() + PATIENCE_NS;
    dtrain_status_t status = dt_shm_connect(address, rank, size, deadline_ns, idle, &node);
    if (status == DTRAIN_OK)
        status = dt_shm_create(node, NULL, &backend);
    if (status == DTRAIN_OK)
        backend->ops->destroy(backend, 1);
    _exit(-status);
}

static void test_shm_join_of_processes_with_smaller_limits_takes_the_least(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node;
    pid_t children[2];
    open_listener(&address, &listener);
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0)
            be_rank(&address, i + 1, 3, i == 1 ? INT64_C(100) << 20 : 0);
    }
    assert_int_equal(dt_shm_accept(listener, 3, dt_now_ns() + PATIENCE_NS, idle, &node), DTRAIN_OK);
    assert_in_range(node->mapping->bytes, 64 << 20, 100 << 20);
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    dt_shm_node_free(node);
}

static void test_shm_join_with_a_rank_without_room_fails_on_all_with_its_reason(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node = NULL;
    int descriptors = count_descriptors();
    pid_t children[2];
    open_listener(&address, &listener);
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0)
            be_rank(&address, i + 1, 3, i == 0 ? 1 << 20 : 0);
    }
    assert_int_equal(dt_shm_accept(listener, 3, dt_now_ns() + PATIENCE_NS, idle, &node),
                     DTRAIN_ERR_OUT_OF_MEMORY);
    assert_null(node);
    assert_non_null(strstr(dt_last_error(), strerror(EFBIG)));
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), -DTRAIN_ERR_OUT_OF_MEMORY);
    }
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(count_maps(), 0);
}

/* ---- Failures ---------------------------------------------------------------------------- */

/* Runs three ranks and expects the same status and text on all. */
static void join_in_vain(dtrain_status_t status, const char *text)
{
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node = NULL;
    joiner_t joiners[3];
    int descriptors = count_descriptors();
    open_listener(&address, &listener);
    for (int rank = 1; rank < 3; rank++)
        start(&joiners[rank], &address, rank, 3);
    assert_int_equal(dt_shm_accept(listener, 3, dt_now_ns() + PATIENCE_NS, idle, &node), status);
    assert_non_null(strstr(dt_last_error(), text));
    assert_null(node);
    for (int rank = 1; rank < 3; rank++) {
        pthread_join(joiners[rank].thread, NULL);
        assert_int_equal(joiners[rank].status, status);
        assert_non_null(strstr(joiners[rank].error, text));
        assert_null(joiners[rank].node);
    }
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(count_maps(), 0);
}

/* Whichever rank it is: rank 0, the others, or all but one. */
static void test_shm_join_where_memfds_are_refused_fails_on_all(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 3; allowed++) {
        atomic_store(&refusal, ENOSYS);
        atomic_store(&calls_left, allowed);
        join_in_vain(DTRAIN_ERR_UNSUPPORTED, strerror(ENOSYS));
        atomic_store(&refusal, EMFILE);
        atomic_store(&calls_left, allowed);
        join_in_vain(DTRAIN_ERR_OUT_OF_MEMORY, strerror(EMFILE));
    }
    atomic_store(&calls_left, -1);
}

static void test_shm_join_with_a_rank_missing_times_out_on_all(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node = NULL;
    joiner_t joiner;
    open_listener(&address, &listener);
    start(&joiner, &address, 1, 3);
    assert_int_equal(dt_shm_accept(listener, 3, dt_now_ns() + 300 * DT_NS_PER_MS, idle, &node),
                     DTRAIN_ERR_TIMEOUT);
    assert_non_null(strstr(dt_last_error(), "rank 2"));
    pthread_join(joiner.thread, NULL);
    assert_true(joiner.status < 0);
    assert_int_equal(count_maps(), 0);
}

static void test_shm_join_of_ranks_that_were_told_another_size_fails(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node = NULL;
    joiner_t joiner;
    open_listener(&address, &listener);
    start(&joiner, &address, 1, 3);
    assert_int_equal(dt_shm_accept(listener, 2, dt_now_ns() + PATIENCE_NS, idle, &node),
                     DTRAIN_ERR_COMMUNICATION);
    pthread_join(joiner.thread, NULL);
    assert_int_equal(joiner.status, DTRAIN_ERR_COMMUNICATION);
    assert_int_equal(count_maps(), 0);
}

/* In a process of its own: hears that all ranks are here, and brings no heap. */
static void leave_early(const dt_sock_address_t *address, int rank)
{
    int fd, fds[DT_SHM_PACKET_FDS];
    dt_shm_packet_t packet;
    dt_shm_patience_t patience = {dt_now_ns() + PATIENCE_NS, idle};
    dtrain_status_t status = dt_sock_reach(address, rank, NULL, 1, patience.deadline_ns, idle, &fd);
    if (status == DTRAIN_OK)
        status = dt_shm_packet_receive(fd, &packet, fds, &patience);
    _exit(-status);
}

static void test_shm_join_with_a_rank_that_leaves_fails_on_all(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener;
    dt_shm_node_t *node = NULL;
    joiner_t joiner;
    open_listener(&address, &listener);
    pid_t child = fork();
    if (child == 0)
        leave_early(&address, 2);
    start(&joiner, &address, 1, 3);
    assert_int_equal(dt_shm_accept(listener, 3, dt_now_ns() + PATIENCE_NS, idle, &node),
                     DTRAIN_ERR_COMMUNICATION);
    pthread_join(joiner.thread, NULL);
    assert_int_equal(joiner.status, DTRAIN_ERR_COMMUNICATION);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_maps(), 0);
}

/* ---- What is no heap --------------------------------------------------------------------- */

static void test_shm_heap_that_may_shrink_or_is_short_is_not_mapped(void **state)
{
    (void)state;
    dt_shm_mapping_t *mapping;
    int fd;
    assert_int_equal(dt_shm_mapping_create(2, 16 << 20, &mapping, &fd), DTRAIN_OK);
    assert_int_equal(dt_shm_mapping_attach(mapping, 0, fd), DTRAIN_OK);
    close(fd);

    int files[3];
    files[0] = __real_memfd_create("short", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(files[0], 1 << 20), 0);
    assert_int_equal(fcntl(files[0], F_ADD_SEALS, F_SEAL_SHRINK), 0);
    files[1] = __real_memfd_create("shrinks", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(files[1], 16 << 20), 0);
    files[2] = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dt_shm_mapping_attach(mapping, 1, files[i]), DTRAIN_ERR_COMMUNICATION);
        close(files[i]);
    }
    dt_shm_mapping_release(mapping);
}

static void test_shm_packet_brings_its_descriptors_and_no_others(void **state)
{
    (void)state;
    int ends[2], here[DT_SHM_PACKET_FDS], there[DT_SHM_PACKET_FDS];
    dt_shm_patience_t patience = {dt_now_ns() + PATIENCE_NS, idle};
    int descriptors = count_descriptors();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (int i = 0; i < DT_SHM_PACKET_FDS; i++)
        assert_true((here[i] = dup(ends[0])) >= 0);
    for (int count = 0; count <= DT_SHM_PACKET_FDS; count += 64) {
        dt_shm_packet_t sent = {.bytes = 7, .num_fds = count}, got;
        assert_int_equal(dt_shm_packet_send(ends[0], &sent, here, &patience), DTRAIN_OK);
        assert_int_equal(dt_shm_packet_send(ends[0], &sent, here, &patience), DTRAIN_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(dt_shm_packet_receive(ends[1], &got, there, &patience), DTRAIN_OK);
            assert_memory_equal(&got, &sent, sizeof got);
            dt_shm_close_all(there, got.num_fds);
        }
    }
    /* One that announces more than it brings. */
    dt_shm_packet_t lie = {.num_fds = 2}, got;
    assert_int_equal(send(ends[0], &lie, sizeof lie, 0), sizeof lie);
    assert_int_equal(dt_shm_packet_receive(ends[1], &got, there, &patience),
                     DTRAIN_ERR_COMMUNICATION);
    dt_shm_close_all(here, DT_SHM_PACKET_FDS);
    dt_shm_close_all(ends, 2);
    assert_int_equal(count_descriptors(), descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_join_of_any_size_shares_all_heaps),
        cmocka_unit_test(test_shm_join_of_processes_with_smaller_limits_takes_the_least),
        cmocka_unit_test(test_shm_join_with_a_rank_without_room_fails_on_all_with_its_reason),
        cmocka_unit_test(test_shm_join_where_memfds_are_refused_fails_on_all),
        cmocka_unit_test(test_shm_join_with_a_rank_missing_times_out_on_all),
        cmocka_unit_test(test_shm_join_of_ranks_that_were_told_another_size_fails),
        cmocka_unit_test(test_shm_join_with_a_rank_that_leaves_fails_on_all),
        cmocka_unit_test(test_shm_heap_that_may_shrink_or_is_short_is_not_mapped),
        cmocka_unit_test(test_shm_packet_brings_its_descriptors_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
