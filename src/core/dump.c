#include "core/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/recording.h"
#include "core/runtime.h"
#include "observe/flight_lines.h"

/* Records of a rank that go to another node: what a detector's connections carry in a moment. */
#define REMOTE_RECORDS 128

/* How long other nodes have to answer when a dump is asked for, and when the world has ended. */
#define ASKED_WAIT_NS (2 * DT_NS_PER_S)
#define END_WAIT_NS (DT_NS_PER_S / 2)

/* Dumps of one process in one directory. */
#define FILES_MAX 1000

#define PATH_MAX_BYTES 512

static int64_t now_of(const dt_runtime_t *runtime)
{
    return runtime->clock.now(runtime->clock.context);
}

/* What turns the runtime's times into those since 1970. */
static int64_t epoch_of(const dt_runtime_t *runtime)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * DT_NS_PER_S + wall.tv_nsec - now_of(runtime);
}

dtrain_status_t dt_dump_init(dt_dump_t *dump, int size)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&dump->asking, NULL);
    pthread_mutex_init(&dump->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&dump->heard, &attributes);
    pthread_condattr_destroy(&attributes);
    dump->is_open = dt_calloc((size_t)size, sizeof *dump->is_open);
    return dump->is_open ? DTRAIN_OK
                         : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the recorder");
}

/* Of one that was never made, too. */
void dt_dump_free(dt_dump_t *dump)
{
    if (!dump->is_open)
        return;
    dt_free(dump->is_open);
    dt_buffer_free(&dump->lines);
    pthread_cond_destroy(&dump->heard);
    pthread_mutex_destroy(&dump->lock);
    pthread_mutex_destroy(&dump->asking);
}

/* ---- One rank ------------------------------------------------------------------------------ */

/* Emits a rank's line and its newest records, at most `limit`, and what is unfinished. */
static void emit_rank(const dt_runtime_t *runtime, int rank, int limit, dt_detector_emit_fn_t emit,
                      void *context)
{
    char line[DT_FLIGHT_LINE_MAX + 1];
    const dt_flight_board_t *board = dt_recording_board(runtime, rank);
    const dt_peer_t *peer = &runtime->world.topology.peers[rank];
    dt_flight_record_t *records = dt_alloc(DT_FLIGHT_RECORDS * sizeof *records);
    int64_t epoch_ns = epoch_of(runtime);
    if (!board || !records) {
        dt_free(records);
        return;
    }
    dt_flight_rank_line(rank, peer->host, peer->pid, board, now_of(runtime), epoch_ns, line);
    emit(context, line);
    int count = dt_flight_read(board, records);
    for (int i = 0; i < count; i++) {
        if (i < count - limit && records[i].times_ns[DT_FLIGHT_FINISHED] != 0)
            continue;
        dt_flight_record_line(rank, &records[i], epoch_ns, dt_kind_name, line);
        emit(context, line);
    }
    dt_free(records);
}

void dt_dump_answer(dt_runtime_t *runtime, int rank, dt_detector_emit_fn_t emit, void *context)
{
    emit_rank(runtime, rank, REMOTE_RECORDS, emit, context);
}

void dt_dump_answered(dt_runtime_t *runtime, int rank, uint32_t question, const char *line)
{
    dt_dump_t *dump = &runtime->dump;
    pthread_mutex_lock(&dump->lock);
    int is_wanted = question == atomic_load(&dump->question) && dump->is_open[rank];
    if (is_wanted && line) {
        dt_buffer_append(&dump->lines, line, strlen(line));
        dt_buffer_append(&dump->lines, "\n", 1);
    } else if (is_wanted) {
        dump->is_open[rank] = 0;
        dump->num_open--;
        pthread_cond_signal(&dump->heard);
    }
    pthread_mutex_unlock(&dump->lock);
}

/* ---- The file ------------------------------------------------------------------------------ */

static void write_line(void *file, const char *line)
{
    fprintf(file, "%s\n", line);
}

static void write_head(const dt_runtime_t *runtime, FILE *file, const char *reason)
{
    char quoted[2 * DT_ERROR_MAX];
    dt_flight_quote(reason, quoted, sizeof quoted);
    fprintf(file,
            "{\"type\":\"dump\",\"version\":%d,\"library\":\"%s\",\"rank\":%d,\"size\":%d,"
            "\"time_ns\":%" PRId64 ",\"reason\":%s}\n",
            DT_FLIGHT_DUMP_VERSION, DTRAIN_VERSION_STRING, runtime->world.topology.rank,
            runtime->world.topology.size, now_of(runtime) + epoch_of(runtime), quoted);
}

static void write_sets(dt_runtime_t *runtime, FILE *file)
{
    dt_psets_t *psets = &runtime->psets;
    pthread_mutex_lock(&psets->lock);
    for (int i = 0; i < psets->count; i++) {
        const dt_pset_t *set = psets->sets[i];
        if (set->id == DTRAIN_PSET_WORLD)
            continue;
        fprintf(file, "{\"type\":\"set\",\"set\":%d,\"ranks\":[", (int)set->id);
        for (int member = 0; member < set->size; member++)
            fprintf(file, "%s%d", member > 0 ? "," : "", set->ranks[member]);
        fprintf(file, "]}\n");
    }
    pthread_mutex_unlock(&psets->lock);
}

/* Asks the ranks whose boards are out of sight, and waits. */
static void write_others(dt_runtime_t *runtime, FILE *file, int64_t wait_ns)
{
    dt_dump_t *dump = &runtime->dump;
    int64_t until_ns = dt_now_ns() + wait_ns;
    struct timespec until = {.tv_sec = until_ns / DT_NS_PER_S, .tv_nsec = until_ns % DT_NS_PER_S};
    int late = 0;
    pthread_mutex_lock(&dump->asking);
    pthread_mutex_lock(&dump->lock);
    dt_buffer_clear(&dump->lines);
    dump->lines.failed = 0;
    dump->num_open = 0;
    for (int rank = 0; rank < runtime->world.topology.size; rank++) {
        dump->is_open[rank] = !dt_recording_board(runtime, rank);
        dump->num_open += dump->is_open[rank];
    }
    if (dump->num_open > 0 && runtime->world.detector)
        dt_detector_ask(runtime->world.detector, DT_QUESTION_RECORDS, &dump->question);
    while (dump->num_open > 0 && runtime->world.detector && !late)
        late = pthread_cond_timedwait(&dump->heard, &dump->lock, &until) == ETIMEDOUT;
    atomic_store(&dump->question, 0);
    fwrite(dump->lines.data ? (const char *)dump->lines.data : "", 1, dump->lines.length, file);
    for (int rank = 0; rank < runtime->world.topology.size; rank++) {
        if (dump->is_open[rank])
            fprintf(file, "{\"type\":\"missing\",\"rank\":%d}\n", rank);
    }
    pthread_mutex_unlock(&dump->lock);
    pthread_mutex_unlock(&dump->asking);
}

/* Everything, and closes the file. wait_ns: for other nodes; 0: without them. 0, or -1 and errno.
 */
static int write_file(dt_runtime_t *runtime, FILE *file, const char *reason, int64_t wait_ns)
{
    write_head(runtime, file, reason);
    write_sets(runtime, file);
    for (int rank = 0; rank < runtime->world.topology.size; rank++)
        emit_rank(runtime, rank, DT_FLIGHT_RECORDS, write_line, file);
    fflush(file); /* whatever becomes of this process while it waits */
    if (wait_ns > 0)
        write_others(runtime, file, wait_ns);
    fprintf(file, "{\"type\":\"end\"}\n");
    int failed = ferror(file);
    return fclose(file) != 0 || failed ? -1 : 0;
}

dtrain_status_t dt_dump_write(dt_runtime_t *runtime, const char *path, const char *reason)
{
    FILE *file = fopen(path, "we");
    if (!file || write_file(runtime, file, reason, ASKED_WAIT_NS) != 0)
        return dt_fail(DTRAIN_ERR_FILE, "%.300s: %s", path, strerror(errno));
    return DTRAIN_OK;
}

/* Opens a file that is not there yet; NULL and errno. */
static FILE *open_new(const dt_runtime_t *runtime, const char *dir, char path[PATH_MAX_BYTES])
{
    const dt_topology_t *topology = &runtime->world.topology;
    const dt_peer_t *self = &topology->peers[topology->rank];
    FILE *file = NULL;
    for (int i = 0; i < FILES_MAX && !file; i++) {
        snprintf(path, PATH_MAX_BYTES, "%s/dtrain-flight.%s.%d.%d.jsonl", dir, self->host,
                 (int)self->pid, i);
        file = fopen(path, "wxe");
        if (!file && errno != EEXIST)
            break;
    }
    return file;
}

static void write_new(dt_runtime_t *runtime, const char *dir, const char *reason, int64_t wait_ns)
{
    char path[PATH_MAX_BYTES];
    FILE *file = open_new(runtime, dir, path);
    if (!file || write_file(runtime, file, reason, wait_ns) != 0)
        dt_log(DTRAIN_LOG_WARN, "core", "the last operations are not written to %s: %s", path,
               strerror(errno));
    else
        dt_log(DTRAIN_LOG_WARN, "core", "the last operations are in %s: see dtrain-flight", path);
}

void dt_dump_on_request(dt_runtime_t *runtime, const char *reason)
{
    const char *dir = runtime->config.flight_dir;
    write_new(runtime, dir[0] ? dir : ".", reason, ASKED_WAIT_NS);
}

void dt_dump_on_end(dt_runtime_t *runtime, const char *reason)
{
    const dt_topology_t *topology = &runtime->world.topology;
    if (runtime->config.flight_dir[0] == '\0')
        return;
    int first = 0;
    while (!dt_recording_board(runtime, first) && first < topology->rank)
        first++;
    if (dt_flight_claim(dt_recording_board(runtime, first)))
        write_new(runtime, runtime->config.flight_dir, reason, first == 0 ? END_WAIT_NS : 0);
}
