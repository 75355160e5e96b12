#include "comm/shm/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define HEAP_MAX ((size_t)64 << 30)
#define HEAP_MIN ((size_t)64 << 20)

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static size_t round_up(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* ---- A heap ------------------------------------------------------------------------------ */

static size_t default_heap_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    size_t bytes = pages > 0 && page > 0 ? (size_t)pages * (size_t)page * 2 : HEAP_MAX;
    if (bytes > HEAP_MAX)
        bytes = HEAP_MAX;
    return bytes < HEAP_MIN ? HEAP_MIN : bytes / HUGE_PAGE * HUGE_PAGE;
}

/* To set the size of a file beyond this limit is not only refused: it kills by a signal. */
static size_t file_size_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

/* A file for a heap of as many bytes and its board; -1 and errno when that failed. */
static int open_heap(size_t bytes)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    bytes += DT_BOARD_BYTES;
    if (bytes > file_size_limit()) {
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create("dtrain", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("dtrain", flags);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* ---- Mappings ---------------------------------------------------------------------------- */

/* Addresses that nothing else is put at, without memory behind them. -1 and errno. */
static int reserve(dt_shm_mapping_t *mapping, size_t bytes)
{
    size_t size = (size_t)mapping->size;
    size_t stride = round_up(bytes + DT_BOARD_BYTES);
    if (stride > (SIZE_MAX - HUGE_PAGE) / size) {
        errno = ENOMEM;
        return -1;
    }
    size_t length = size * stride + HUGE_PAGE;
    void *reserved =
        mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return -1;
    size_t beyond = (uintptr_t)reserved % HUGE_PAGE;
    mapping->reserved = reserved;
    mapping->reserved_bytes = length;
    mapping->base = mapping->reserved + (beyond > 0 ? HUGE_PAGE - beyond : 0);
    mapping->stride = stride;
    mapping->bytes = bytes;
    return 0;
}

static void unmap(dt_shm_mapping_t *mapping)
{
    munmap(mapping->reserved, mapping->reserved_bytes);
}

static int try_create(dt_shm_mapping_t *mapping, size_t bytes, int *fd)
{
    if (reserve(mapping, bytes) != 0)
        return -1;
    *fd = open_heap(bytes);
    if (*fd >= 0)
        return 0;
    int error = errno;
    unmap(mapping);
    errno = error;
    return -1;
}

dtrain_status_t dt_shm_mapping_create(int size, int64_t wanted, dt_shm_mapping_t **mapping, int *fd)
{
    size_t bytes = wanted > 0 ? round_up((size_t)wanted) : default_heap_bytes();
    dt_shm_mapping_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the node's shared memory");
    made->size = size;
    made->users = 1;
    int opened;
    int failed = try_create(made, bytes, &opened);
    while (failed && bytes / 2 >= HEAP_MIN) {
        bytes = round_up(bytes / 2);
        failed = try_create(made, bytes, &opened);
    }
    if (failed) {
        int error = errno;
        dt_free(made);
        return dt_fail(error == ENOSYS || error == EPERM ? DTRAIN_ERR_UNSUPPORTED
                                                         : DTRAIN_ERR_OUT_OF_MEMORY,
                       "no shared memory of %zu MiB a rank: %s", bytes >> 20, strerror(error));
    }
    *mapping = made;
    *fd = opened;
    return DTRAIN_OK;
}

static int is_sound(int fd, size_t bytes)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 &&
           (uintmax_t)file.st_size >= bytes;
}

dtrain_status_t dt_shm_mapping_attach(dt_shm_mapping_t *mapping, int rank, int fd)
{
    size_t bytes = mapping->bytes + DT_BOARD_BYTES;
    if (!is_sound(fd, bytes))
        return dt_fail(DTRAIN_ERR_COMMUNICATION,
                       "what local rank %d calls its shared memory is not as it has to be", rank);
    uint8_t *heap = dt_shm_mapping_heap(mapping, rank);
    if (mmap(heap, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "cannot map %zu MiB of shared memory of local rank %d: %s",
                       mapping->bytes >> 20, rank, strerror(errno));
    /* A core dump would fill in all that the heap leaves out. */
    madvise(heap, bytes, MADV_DONTDUMP);
    return DTRAIN_OK;
}

uint8_t *dt_shm_mapping_heap(const dt_shm_mapping_t *mapping, int rank)
{
    return mapping->base + (size_t)rank * mapping->stride;
}

void *dt_shm_mapping_board(const dt_shm_mapping_t *mapping, int rank)
{
    return dt_shm_mapping_heap(mapping, rank) + mapping->bytes;
}

void dt_shm_mapping_release(dt_shm_mapping_t *mapping)
{
    if (atomic_fetch_sub(&mapping->users, 1) > 1)
        return;
    unmap(mapping);
    dt_free(mapping);
}

/* ---- Nodes ------------------------------------------------------------------------------- */

dt_shm_node_t *dt_shm_node_create(dt_shm_mapping_t *mapping, int rank)
{
    dt_shm_node_t *node = dt_calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->rank = rank;
    node->mapping = mapping;
    atomic_fetch_add(&mapping->users, 1);
    return node;
}

void dt_shm_node_free(dt_shm_node_t *node)
{
    if (!node)
        return;
    dt_shm_mapping_release(node->mapping);
    dt_free(node);
}

static void release_mapping(void *mapping)
{
    dt_shm_mapping_release(mapping);
}

dtrain_status_t dt_shm_node_boards(const dt_shm_node_t *node, const int *ranks, int size,
                                   dt_boards_t *boards)
{
    dt_shm_mapping_t *mapping = node->mapping;
    void **at = dt_calloc((size_t)size, sizeof *at);
    if (!at)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the node's boards");
    for (int local = 0; local < mapping->size; local++)
        at[ranks[local]] = dt_shm_mapping_board(mapping, local);
    atomic_fetch_add(&mapping->users, 1);
    *boards = (dt_boards_t){.at = at, .release = release_mapping, .memory = mapping};
    return DTRAIN_OK;
}

static dtrain_status_t attach_more(dt_shm_mapping_t *mapping)
{
    dtrain_status_t status = DTRAIN_OK;
    for (int rank = 1; rank < mapping->size && status == DTRAIN_OK; rank++) {
        int fd = open_heap(mapping->bytes);
        if (fd < 0)
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no shared memory for local rank %d: %s", rank,
                           strerror(errno));
        status = dt_shm_mapping_attach(mapping, rank, fd);
        close(fd);
    }
    return status;
}

dtrain_status_t dt_shm_local_group(int size, int64_t heap_bytes, dt_shm_node_t **nodes)
{
    dt_shm_mapping_t *mapping;
    int fd;
    dtrain_status_t status = dt_shm_mapping_create(size, heap_bytes, &mapping, &fd);
    if (status != DTRAIN_OK)
        return status;
    status = dt_shm_mapping_attach(mapping, 0, fd);
    close(fd);
    if (status == DTRAIN_OK)
        status = attach_more(mapping);
    int made = 0;
    while (status == DTRAIN_OK && made < size) {
        nodes[made] = dt_shm_node_create(mapping, made);
        if (nodes[made])
            made++;
        else
            status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for local rank %d", made);
    }
    if (status != DTRAIN_OK) {
        while (made > 0)
            dt_shm_node_free(nodes[--made]);
    }
    dt_shm_mapping_release(mapping);
    return status;
}
