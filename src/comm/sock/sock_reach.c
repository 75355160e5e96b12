/*
 * sock_reach.c - a rank connects to rank 0. It tries every address in turn, round after round
 * until the deadline, and gives each more time in each round: one that swallows packets must not
 * keep it from the one that works.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/sock/sock_handshake.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_net.h"

#define FIRST_TRY_NS (2 * DT_NS_PER_S)
#define LONGEST_TRY_NS (30 * DT_NS_PER_S)
#define PAUSE_NS (20 * DT_NS_PER_MS)
/* So often nobody listens before a rank gives up; meanwhile it may hear why. */
#define ROUNDS_REFUSED 3

/* One address, and how the last attempt to reach it ended. */
typedef struct target {
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_in ipv4;
    } name;
    socklen_t length;
    char text[64];
} target_t;

typedef struct caller {
    const uint8_t *secret;
    int rank;
    dt_sock_names_t names;
    int64_t deadline_ns;
    dt_sock_meanwhile_t meanwhile;
    int num_refused; /* targets of this round at which nobody listens */
    char failure[256];
} caller_t;

static int fail_try(caller_t *caller, const target_t *target, const char *why)
{
    dt_text_format(caller->failure, sizeof caller->failure, "%s: %s", target->text, why);
    dt_log(DTRAIN_LOG_DEBUG, "sock", "cannot connect to rank %d at %s", caller->names.other,
           caller->failure);
    return -1;
}

static int finish_connect(caller_t *caller, const target_t *target, int fd, int64_t limit_ns)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (connect(fd, &target->name.any, target->length) == 0)
        return 0;
    /* EAGAIN: a Unix listener's queue is full. It is tried again in the next round. */
    if (errno != EINPROGRESS && errno != EINTR) {
        caller->num_refused += errno == ECONNREFUSED;
        return fail_try(caller, target, strerror(errno));
    }
    if (dt_sock_wait(fd, POLLOUT, limit_ns, caller->meanwhile) != 0)
        return fail_try(caller, target, "no answer");
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        caller->num_refused += error == ECONNREFUSED;
        return fail_try(caller, target, strerror(error ? error : errno));
    }
    return 0;
}

static int shake_hands(caller_t *caller, const target_t *target, int fd, int64_t limit_ns)
{
    uint8_t hello[DT_SOCK_HELLO_BYTES];
    uint8_t answer[DT_SOCK_ANSWER_BYTES];
    dt_sock_write_hello(hello, caller->secret, caller->rank);
    if (send(fd, hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return fail_try(caller, target, strerror(errno));
    for (size_t got = 0; got < sizeof answer;) {
        if (dt_sock_wait(fd, POLLIN, limit_ns, caller->meanwhile) != 0)
            return fail_try(caller, target, "no answer to the hello");
        ssize_t more = recv(fd, answer + got, sizeof answer - got, MSG_DONTWAIT);
        if (more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR))
            return fail_try(caller, target, more ? strerror(errno) : "the hello was refused");
        if (more > 0)
            got += (size_t)more;
    }
    if (!dt_sock_check_answer(answer, caller->secret))
        return fail_try(caller, target, "it is not the rank that is called");
    return 0;
}

/* *fd is a connection to rank 0, or -1. An error is one that no other address would mend. */
static dtrain_status_t try_target(caller_t *caller, const target_t *target, int64_t limit_ns,
                                  int *fd)
{
    int opened = socket(target->name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened < 0)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "rank %d cannot open a socket: %s",
                       caller->names.self, strerror(errno));
    if (target->name.any.sa_family == AF_INET)
        dt_sock_tune_tcp(opened);
    if (finish_connect(caller, target, opened, limit_ns) != 0 ||
        shake_hands(caller, target, opened, limit_ns) != 0) {
        close(opened);
        opened = -1;
    }
    *fd = opened;
    return DTRAIN_OK;
}

static int list_targets(const dt_sock_address_t *address, int same_node, target_t *targets)
{
    int count = 0;
    char ipv4[INET_ADDRSTRLEN];
    if (same_node) {
        target_t *target = &targets[count++];
        target->length = dt_sock_unix_address(&target->name.local, address);
        dt_text_format(target->text, sizeof target->text, "Unix socket @%.40s",
                       target->name.local.sun_path + 1);
    }
    for (int i = 0; address->tcp_port != 0 && i < address->num_addresses; i++) {
        if (i == DT_SOCK_MAX_ADDRESSES) /* what rank 0 told is not trusted to be in range */
            break;
        target_t *target = &targets[count++];
        target->name.ipv4 =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(address->tcp_port)};
        memcpy(&target->name.ipv4.sin_addr, address->ipv4[i], 4);
        target->length = sizeof target->name.ipv4;
        inet_ntop(AF_INET, address->ipv4[i], ipv4, sizeof ipv4);
        dt_text_format(target->text, sizeof target->text, "%s:%u", ipv4,
                       (unsigned)address->tcp_port);
    }
    return count;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static dtrain_status_t reach(caller_t *caller, const target_t *targets, int num_targets, int *fd)
{
    int rounds_refused = 0;
    *fd = -1;
    for (int64_t patience = FIRST_TRY_NS;; patience = earlier(2 * patience, LONGEST_TRY_NS)) {
        caller->num_refused = 0;
        for (int i = 0; i < num_targets; i++) {
            int64_t limit = earlier(dt_now_ns() + patience, caller->deadline_ns);
            dtrain_status_t status = try_target(caller, &targets[i], limit, fd);
            if (status != DTRAIN_OK || *fd >= 0)
                return status;
        }
        dt_sock_wait(-1, 0, earlier(dt_now_ns() + PAUSE_NS, caller->deadline_ns),
                     caller->meanwhile);
        dtrain_status_t health =
            caller->meanwhile.call ? caller->meanwhile.call(caller->meanwhile.context) : DTRAIN_OK;
        if (health != DTRAIN_OK) /* rank 0 may have given up for it, and listens no more */
            return health;
        /* It listened before it told where: it has given up. */
        rounds_refused = caller->num_refused == num_targets ? rounds_refused + 1 : 0;
        if (rounds_refused == ROUNDS_REFUSED)
            return dt_fail(DTRAIN_ERR_COMMUNICATION,
                           "rank %d cannot connect to rank 0, which listens no more (%s)",
                           caller->rank, caller->failure);
        if (dt_now_ns() >= caller->deadline_ns)
            return dt_fail(DTRAIN_ERR_TIMEOUT, "rank %d cannot connect to rank %d (%s)",
                           caller->names.self, caller->names.other, caller->failure);
    }
}

dtrain_status_t dt_sock_reach(const dt_sock_address_t *address, int rank,
                              const dt_sock_names_t *names, int same_node, int64_t deadline_ns,
                              dt_sock_meanwhile_t meanwhile, int *fd)
{
    target_t targets[DT_SOCK_MAX_ADDRESSES + 1] = {0};
    caller_t caller = {.secret = address->secret,
                       .rank = rank,
                       .names = names ? *names : (dt_sock_names_t){.self = rank, .other = 0},
                       .deadline_ns = deadline_ns,
                       .meanwhile = meanwhile};
    int num_targets = list_targets(address, same_node, targets);
    if (num_targets == 0)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "rank %d has no address at which to reach rank %d",
                       caller.names.self, caller.names.other);
    return reach(&caller, targets, num_targets, fd);
}
