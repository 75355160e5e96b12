#include "comm/mpi/mpi_hello.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dtrain/version.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

static const char magic[8] = "dtrain-h";

/* "rank 3 on host gpu7 (pid 4711)" before there is a topology. */
#define NAME_MAX_BYTES (DT_HOST_MAX + 48)

static void read_boot_id(char *text, size_t cap)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, text, cap - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static void read_place(dt_mpi_hello_fields_t *fields)
{
    struct stat space;
    if (gethostname(fields->host, sizeof fields->host - 1) != 0 && fields->host[0] == '\0')
        strcpy(fields->host, "unknown");
    fields->host[sizeof fields->host - 1] = '\0';
    read_boot_id(fields->boot_id, sizeof fields->boot_id);
    if (stat("/proc/self/ns/net", &space) == 0)
        fields->network_namespace = (uint64_t)space.st_ino;
    fields->pid = (int32_t)getpid();
    dt_cpu_allowed(fields->cores);
    fields->quota = dt_cpu_quota();
}

void dt_mpi_hello_write(dt_mpi_hello_t *hello, const dt_config_t *config, dtrain_status_t status)
{
    memset(hello, 0, sizeof *hello);
    memcpy(hello->is.magic, magic, sizeof magic);
    hello->is.protocol = DT_MPI_PROTOCOL;
    hello->is.library_version = DTRAIN_VERSION;
    hello->is.status = status;
    if (status != DTRAIN_OK)
        dt_text_format(hello->is.error, sizeof hello->is.error, "%s", dt_last_error());
    hello->is.config = *config;
    read_place(&hello->is);
}

static void name_rank(const dt_mpi_hello_t *hello, int rank, char text[NAME_MAX_BYTES])
{
    dt_text_format(text, NAME_MAX_BYTES, "rank %d on host %s (pid %d)", rank, hello->is.host,
                   (int)hello->is.pid);
}

static dtrain_status_t check_version(const dt_mpi_hello_t *first, const dt_mpi_hello_t *hello,
                                     int rank)
{
    const dt_mpi_hello_fields_t *a = &first->is;
    const dt_mpi_hello_fields_t *b = &hello->is;
    if (memcmp(a->magic, b->magic, sizeof magic) == 0 && a->protocol == b->protocol &&
        a->library_version == b->library_version)
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                   "rank 0 runs libdtrain %u.%u.%u (protocol %u), but rank %d runs %u.%u.%u "
                   "(protocol %u): all ranks must load the same libdtrain",
                   a->library_version / 10000, a->library_version / 100 % 100,
                   a->library_version % 100, a->protocol, rank, b->library_version / 10000,
                   b->library_version / 100 % 100, b->library_version % 100, b->protocol);
}

/* A rank that failed keeps its own text; the others are told whose it is. */
static dtrain_status_t report(const dt_mpi_hello_t *hellos, int failed, int rank)
{
    const dt_mpi_hello_fields_t *fields = &hellos[failed].is;
    dtrain_status_t status =
        fields->status < 0 ? (dtrain_status_t)fields->status : DTRAIN_ERR_COMMUNICATION;
    if (failed == rank)
        return dt_fail(status, "%s", fields->error);
    char name[NAME_MAX_BYTES];
    name_rank(&hellos[failed], failed, name);
    return dt_fail(status, "%s cannot join: %s", name, fields->error);
}

dtrain_status_t dt_mpi_hello_check(dt_mpi_hello_t *hellos, int rank, int size)
{
    for (int i = 0; i < size; i++) {
        dtrain_status_t status = check_version(&hellos[0], &hellos[i], i);
        if (status != DTRAIN_OK)
            return status;
        dt_mpi_hello_fields_t *fields = &hellos[i].is;
        fields->host[sizeof fields->host - 1] = '\0';
        fields->boot_id[sizeof fields->boot_id - 1] = '\0';
        fields->error[sizeof fields->error - 1] = '\0';
    }
    if (hellos[rank].is.status != DTRAIN_OK)
        return report(hellos, rank, rank);
    for (int i = 0; i < size; i++) {
        if (hellos[i].is.status != DTRAIN_OK)
            return report(hellos, i, rank);
    }
    return DTRAIN_OK;
}

int dt_mpi_hello_same_node(const dt_mpi_hello_t *a, const dt_mpi_hello_t *b)
{
    return strcmp(a->is.host, b->is.host) == 0 && strcmp(a->is.boot_id, b->is.boot_id) == 0;
}

int dt_mpi_hello_shares_sockets(const dt_mpi_hello_t *a, const dt_mpi_hello_t *b)
{
    return dt_mpi_hello_same_node(a, b) && a->is.network_namespace == b->is.network_namespace;
}

/* The lowest rank of the node. Launchers mostly place neighbours together or in turns, so what
 * is looked for is close to either end. */
static int find_node(const dt_mpi_hello_t *hellos, const dt_peer_t *peers, int rank)
{
    if (rank > 0 && dt_mpi_hello_same_node(&hellos[rank - 1], &hellos[rank]))
        return peers[rank - 1].node;
    for (int i = 0; i < rank; i++) {
        if (dt_mpi_hello_same_node(&hellos[i], &hellos[rank]))
            return i;
    }
    return rank;
}

/* A launcher may bind each rank to cores of its own, or all to the same. */
static int count_local_cores(const dt_mpi_hello_t *hellos, const dt_topology_t *topology)
{
    uint64_t all[DT_CPU_WORDS] = {0};
    int quota = hellos[topology->rank].is.quota;
    for (int i = 0; i < topology->size; i++) {
        if (topology->peers[i].node != topology->peers[topology->rank].node)
            continue;
        for (int word = 0; word < DT_CPU_WORDS; word++)
            all[word] |= hellos[i].is.cores[word];
    }
    int cores = dt_cpu_count(all);
    return quota < cores ? quota : cores;
}

dtrain_status_t dt_mpi_hello_topology(const dt_mpi_hello_t *hellos, int rank, int size,
                                      dt_topology_t *topology)
{
    dt_peer_t *peers = dt_calloc((size_t)size, sizeof *peers);
    if (!peers)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of %d ranks", size);
    for (int i = 0; i < size; i++) {
        memcpy(peers[i].host, hellos[i].is.host, sizeof peers[i].host);
        peers[i].pid = hellos[i].is.pid;
        peers[i].node = find_node(hellos, peers, i);
    }
    dtrain_status_t status = dt_topology_make(topology, rank, size, peers);
    if (status == DTRAIN_OK)
        topology->local_cores = count_local_cores(hellos, topology);
    return status;
}
