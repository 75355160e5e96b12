#include "comm/mpi/mpi_detect.h"

#include <time.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/detect/detect_join.h"
#include "comm/mpi/mpi_call.h"

#define ERROR_MAX 256
#define EXCHANGE_NS (2 * DT_NS_PER_S)
/* How often the detector is looked at, and how long it may take to explain a failure of MPI's. */
#define LOOK_NS (10 * DT_NS_PER_MS)
#define EXPLAIN_NS (200 * DT_NS_PER_MS)

/* What a rank tells all others, first its place and then how connecting went. */
typedef struct report {
    int32_t status;
    char error[ERROR_MAX];
    dt_detect_place_t place;
} report_t;

/* How likely a rank's failure is what others only follow from: a rank that gives up closes its
 * connections, and is waited for. */
static int is_cause(int32_t status)
{
    if (status == DTRAIN_ERR_TIMEOUT)
        return 1;
    return status == DTRAIN_ERR_COMMUNICATION ? 2 : 3;
}

/* The error that all ranks fail with: rather a cause than what follows from it. */
static dtrain_status_t judge(dt_mpi_bootstrap_t *self, report_t *reports)
{
    int failed = -1;
    for (int rank = 0; rank < self->size; rank++) {
        if (reports[rank].status != DTRAIN_OK &&
            (failed < 0 || is_cause(reports[rank].status) > is_cause(reports[failed].status)))
            failed = rank;
    }
    if (failed < 0)
        return DTRAIN_OK;
    report_t *report = &reports[failed];
    report->error[ERROR_MAX - 1] = '\0';
    self->is_agreed = 1;
    return dt_fail(report->status < 0 ? (dtrain_status_t)report->status : DTRAIN_ERR_COMMUNICATION,
                   "rank %d has no failure detector: %s", failed, report->error);
}

static dtrain_status_t take_news(dt_mpi_bootstrap_t *self)
{
    char text[DT_ERROR_MAX];
    dtrain_status_t status = dt_detector_take_news(self->world.detector, text, sizeof text);
    return dt_fail(status, "%s", text);
}

static dtrain_status_t explain(dt_mpi_bootstrap_t *self, dtrain_status_t failure)
{
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    int64_t limit_ns = dt_now_ns() + EXPLAIN_NS;
    char text[DT_ERROR_MAX];
    dt_text_format(text, sizeof text, "%s", dt_last_error());
    while (dt_now_ns() < limit_ns) {
        if (dt_detector_look(self->world.detector))
            return take_news(self);
        nanosleep(&pause, NULL);
    }
    return dt_fail(failure, "%s", text);
}

dtrain_status_t dt_mpi_detect_finish(dt_mpi_bootstrap_t *self, MPI_Request *request,
                                     const char *what)
{
    for (;;) {
        int64_t slice_ns = dt_now_ns() + LOOK_NS;
        int is_last = slice_ns >= self->deadline_ns;
        dtrain_status_t status = dt_mpi_watch_finish(&self->watch, request,
                                                     is_last ? self->deadline_ns : slice_ns, what);
        if (status == DTRAIN_OK)
            return status;
        if (status != DTRAIN_ERR_TIMEOUT)
            return explain(self, status);
        if (dt_detector_look(self->world.detector))
            return take_news(self);
        if (is_last)
            return status;
    }
}

/* Everyone's reports to everyone; `status` is this rank's own. */
static dtrain_status_t exchange(dt_mpi_bootstrap_t *self, dtrain_status_t status, report_t *reports)
{
    MPI_Request request;
    report_t *own = &reports[self->rank];
    own->status = status;
    if (status != DTRAIN_OK)
        dt_text_format(own->error, sizeof own->error, "%s", dt_last_error());
    self->is_agreed = 0;
    status = dt_mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, reports,
                                         (int)sizeof *reports, MPI_BYTE, self->comm, &request),
                          "MPI_Iallgather");
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_await(self, &request, "MPI_Iallgather");
    return status == DTRAIN_OK ? judge(self, reports) : status;
}

static dtrain_status_t gather_places(dt_mpi_bootstrap_t *self, int share_sockets, report_t *reports,
                                     dt_detect_place_t *places, dt_sock_listener_t **listener)
{
    const dt_topology_t *topology = &self->world.topology;
    dtrain_status_t status =
        dt_detect_place_make(topology, !share_sockets || topology->num_nodes > 1,
                             self->config.network_interface, &reports[self->rank].place, listener);
    status = exchange(self, status, reports);
    for (int rank = 0; rank < self->size; rank++)
        places[rank] = reports[rank].place;
    return status;
}

/* All ranks are here, so that connecting takes no time; leaves some for the exchange behind it. */
static int64_t connect_limit(dt_mpi_bootstrap_t *self)
{
    int64_t span = self->config.init_timeout_ns;
    int64_t limit_ns = dt_now_ns() + (span < DT_MPI_CONNECT_NS ? span : DT_MPI_CONNECT_NS);
    int64_t after_ns = limit_ns + (span < EXCHANGE_NS ? span : EXCHANGE_NS);
    if (self->deadline_ns < after_ns)
        self->deadline_ns = after_ns;
    return limit_ns;
}

static dtrain_status_t join(dt_mpi_bootstrap_t *self, int share_sockets, report_t *reports,
                            dt_detect_place_t *places)
{
    dt_sock_listener_t *listener = NULL;
    dt_sock_meanwhile_t meanwhile = {dt_mpi_bootstrap_poll, self};
    dt_detector_settings_t settings = {.heartbeat_ns = self->config.heartbeat_ns,
                                       .timeout_ns = self->config.link_timeout_ns,
                                       .clock = dt_clock_system()};
    dtrain_status_t status = gather_places(self, share_sockets, reports, places, &listener);
    if (status != DTRAIN_OK) {
        dt_sock_listener_free(listener);
        return status;
    }
    /* A rank that fails tells those who wait for it, and all meet again in the exchange. */
    int64_t limit_ns = connect_limit(self);
    status = dt_detector_join(&self->world.topology, places, listener, &settings, limit_ns,
                              meanwhile, &self->world.detector);
    if (status != DTRAIN_OK && status != DTRAIN_ERR_TIMEOUT && status != DTRAIN_ERR_RANK_LOST)
        status = dt_mpi_bootstrap_tell(self, status);
    return exchange(self, status, reports);
}

dtrain_status_t dt_mpi_detect_join(dt_mpi_bootstrap_t *self, int share_sockets)
{
    dt_detect_place_t *places = dt_calloc((size_t)self->size, sizeof *places);
    report_t *reports = dt_calloc((size_t)self->size, sizeof *reports);
    self->reports = reports;
    dtrain_status_t worst;
    dtrain_status_t status = dt_mpi_bootstrap_agree(
        self, reports && places ? DTRAIN_OK : DTRAIN_ERR_OUT_OF_MEMORY, &worst);
    if (status == DTRAIN_OK && worst == DTRAIN_OK) {
        status = join(self, share_sockets, reports, places);
    } else if (status == DTRAIN_OK) {
        self->is_agreed = 1;
        status = dt_fail(worst, "%s has no memory for a failure detector",
                         reports && places ? "another rank" : "this rank");
    }
    dt_free(places);
    return status;
}
