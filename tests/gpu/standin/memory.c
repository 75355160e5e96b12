/*
 * memory.c - device memory is one range of addresses that is mapped twice: as the device's, which
 * nobody may read or write, so that a program that takes a device pointer for its own ends at once,
 * and as the stand-in's, at a constant distance. Beside that, which host memory is pinned.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

#define DEVICE_BYTES ((size_t)4 << 30)
#define BLOCKS_MAX 65536

typedef struct block {
    size_t begin, bytes; /* with the gap behind it */
    size_t asked;
    int owner; /* a device's number */
} block_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *device, *host; /* [once] */
static block_t *blocks;     /* [lock] in the order of addresses */
static int num_blocks;      /* [lock] */

typedef struct pinned {
    char *begin;
    size_t bytes;
} pinned_t;

static pinned_t pinned[1024]; /* [lock] */
static int num_pinned;        /* [lock] */

static void map_device(void)
{
    int fd = memfd_create("standin-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)DEVICE_BYTES) != 0)
        abort();
    host = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    device = mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    blocks = malloc(BLOCKS_MAX * sizeof *blocks);
    if (host == MAP_FAILED || device == MAP_FAILED || !blocks)
        abort();
    close(fd);
}

int standin_is_device(const void *pointer)
{
    pthread_once(&once, map_device);
    return (const char *)pointer >= device && (const char *)pointer < device + DEVICE_BYTES;
}

void *standin_reach(const void *pointer)
{
    if (!standin_is_device(pointer))
        return (void *)pointer;
    return host + ((const char *)pointer - device);
}

/* The first gap that is long enough: before which block it is, or -1. [lock held] */
static int find_gap(size_t bytes, size_t alignment, size_t *begin)
{
    size_t end = 0;
    for (int i = 0; i <= num_blocks; i++) {
        size_t next = i < num_blocks ? blocks[i].begin : DEVICE_BYTES;
        end = (end + alignment - 1) / alignment * alignment;
        if (next >= end && next - end >= bytes) {
            *begin = end;
            return i;
        }
        end = blocks[i].begin + blocks[i].bytes;
    }
    return -1;
}

void *standin_allocate(size_t bytes, size_t alignment)
{
    size_t begin = 0;
    void *found = NULL;
    pthread_once(&once, map_device);
    if (bytes > DEVICE_BYTES)
        return NULL;
    size_t whole = (bytes / alignment + 1) * alignment; /* a gap behind, also after 0 bytes */
    pthread_mutex_lock(&lock);
    int at = num_blocks < BLOCKS_MAX ? find_gap(whole, alignment, &begin) : -1;
    if (at >= 0) {
        memmove(&blocks[at + 1], &blocks[at], (size_t)(num_blocks - at) * sizeof *blocks);
        blocks[at] =
            (block_t){.begin = begin, .bytes = whole, .asked = bytes, .owner = standin_current()};
        num_blocks++;
        found = device + begin;
        memset(host + begin, 0xff, bytes); /* not a number, as float and half too */
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int standin_free(void *pointer)
{
    int at = 0;
    pthread_once(&once, map_device);
    pthread_mutex_lock(&lock);
    while (at < num_blocks && device + blocks[at].begin != pointer)
        at++;
    int failed = at == num_blocks;
    if (!failed) {
        memset(host + blocks[at].begin, 0xff, blocks[at].asked);
        num_blocks--;
        memmove(&blocks[at], &blocks[at + 1], (size_t)(num_blocks - at) * sizeof *blocks);
    }
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}

size_t standin_room(const void *pointer)
{
    size_t room = 0, offset = (size_t)((const char *)pointer - device);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_blocks; i++) {
        if (offset >= blocks[i].begin && offset < blocks[i].begin + blocks[i].asked)
            room = blocks[i].begin + blocks[i].asked - offset;
    }
    pthread_mutex_unlock(&lock);
    return room;
}

int standin_memory_device(const void *pointer)
{
    int owner = 0;
    size_t offset = (size_t)((const char *)pointer - device);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_blocks; i++) {
        if (offset >= blocks[i].begin && offset < blocks[i].begin + blocks[i].bytes)
            owner = blocks[i].owner;
    }
    pthread_mutex_unlock(&lock);
    return owner;
}

static int find_pinned(const char *pointer)
{
    for (int i = 0; i < num_pinned; i++) {
        if (pointer >= pinned[i].begin && pointer < pinned[i].begin + pinned[i].bytes)
            return i;
    }
    return -1;
}

int standin_is_pinned(const void *pointer)
{
    pthread_mutex_lock(&lock);
    int found = find_pinned(pointer) >= 0;
    pthread_mutex_unlock(&lock);
    return found;
}

int standin_pin(void *pointer, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int failed = num_pinned == (int)(sizeof pinned / sizeof pinned[0]) || find_pinned(pointer) >= 0;
    if (!failed)
        pinned[num_pinned++] = (pinned_t){.begin = pointer, .bytes = bytes};
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}

int standin_unpin(void *pointer)
{
    pthread_mutex_lock(&lock);
    int at = find_pinned(pointer);
    int failed = at < 0 || pinned[at].begin != pointer;
    if (!failed)
        pinned[at] = pinned[--num_pinned];
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}
