/* Only in builds with fault points: see fault.h. */
#include "base/fault.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

typedef enum action { KILL, STOP, EXIT, ABORT, SEGV, FAIL, ACTION_COUNT } action_t;

static const char *const actions[ACTION_COUNT] = {"kill", "stop", "exit", "abort", "segv", "fail"};

static const char *const points[DT_FAULT_COUNT] = {
    [DT_FAULT_INIT_MPI] = "init-mpi",
    [DT_FAULT_INIT_HELLO] = "init-hello",
    [DT_FAULT_INIT_CONNECT] = "init-connect",
    [DT_FAULT_INIT_SHARE] = "init-share",
    [DT_FAULT_INIT_START] = "init-start",
    [DT_FAULT_ENQUEUE] = "enqueue",
    [DT_FAULT_NEGOTIATE] = "negotiate",
    [DT_FAULT_VERDICT] = "verdict",
    [DT_FAULT_PACK] = "pack",
    [DT_FAULT_REDUCE] = "reduce",
    [DT_FAULT_UNPACK] = "unpack",
    [DT_FAULT_BROADCAST] = "broadcast",
    [DT_FAULT_SHUTDOWN_BYE] = "shutdown-bye",
    [DT_FAULT_SHUTDOWN_WAIT] = "shutdown-wait",
    [DT_FAULT_SHUTDOWN_LEAVE] = "shutdown-leave",
    [DT_FAULT_ALLOC] = "alloc",
};

#define NO_POINT (-1)

/* Of the process, and not of a runtime: memory is asked for where there is none yet. */
static struct {
    _Atomic int point;         /* [atomic] NO_POINT: no rule; released after the rest is set */
    _Atomic long long left;    /* [atomic] how often the point is passed before the action */
    action_t action;           /* [const] */
    char text[PATH_MAX + 128]; /* [const] the rule as it was given */
    const char *file;          /* [const] in the text; "": none */
    int rank;                  /* [const] */
} rule = {.point = NO_POINT};

/* The index of the first `length` bytes of `word` among `names`, or -1. */
static int find(const char *const *names, int count, const char *word, size_t length)
{
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], word, length) == 0)
            return i;
    }
    return -1;
}

static dtrain_status_t fail_rule(const char *text)
{
    char list[512];
    size_t length = 0;
    for (int i = 0; i < DT_FAULT_COUNT; i++)
        length += dt_text_format(list + length, sizeof list - length, " %s", points[i]);
    length += dt_text_format(list + length, sizeof list - length, "; actions:");
    for (int i = 0; i < ACTION_COUNT; i++)
        length += dt_text_format(list + length, sizeof list - length, " %s", actions[i]);
    return dt_fail(DTRAIN_ERR_CONFIG,
                   "DTRAIN_FAULT='%.64s': expected rank:point:nth:action[:file], a rank or * and "
                   "nth from 1 on; `fail` is for alloc; points:%s",
                   text, list);
}

/* The next field, which ends at a colon or with the text; its length is at *length. */
static const char *next_field(const char **at, size_t *length)
{
    const char *field = *at;
    *length = strcspn(field, ":");
    *at = field + *length + (field[*length] == ':');
    return field;
}

static int read_number(const char *field, size_t length, long long *number)
{
    char *end;
    *number = strtoll(field, &end, 10);
    return length > 0 && end == field + length ? 0 : -1;
}

dtrain_status_t dt_fault_arm(const char *text, int rank)
{
    if (text[0] && strcmp(text, rule.text) == 0)
        return DTRAIN_OK;
    if (strlen(text) >= sizeof rule.text)
        return fail_rule(text);
    const char *at = text;
    size_t lengths[4];
    const char *fields[4];
    for (int i = 0; i < 4; i++)
        fields[i] = next_field(&at, &lengths[i]);
    int is_any = lengths[0] == 1 && fields[0][0] == '*';
    int point = find(points, DT_FAULT_COUNT, fields[1], lengths[1]);
    int action = find(actions, ACTION_COUNT, fields[3], lengths[3]);
    long long chosen = rank, nth;
    if ((!is_any && read_number(fields[0], lengths[0], &chosen)) || chosen < 0 || point < 0 ||
        read_number(fields[2], lengths[2], &nth) || nth < 1 || action < 0 ||
        (action == FAIL && point != DT_FAULT_ALLOC))
        return fail_rule(text);
    dt_fault_disarm();
    memcpy(rule.text, text, strlen(text) + 1);
    rule.file = rule.text + (at - text);
    rule.action = (action_t)action;
    rule.rank = rank;
    atomic_store(&rule.left, nth);
    if (chosen == rank)
        atomic_store_explicit(&rule.point, point, memory_order_release);
    return DTRAIN_OK;
}

void dt_fault_disarm(void)
{
    atomic_store(&rule.point, NO_POINT);
    rule.text[0] = '\0';
}

/* In one write: whoever reads the file may do so at any time. */
static void leave_word(void)
{
    char line[256];
    int file = rule.file[0] ? open(rule.file, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    size_t length = dt_text_format(
        line, sizeof line, "{\"victim\": %d, \"pid\": %d, \"action\": \"%s\", \"ns\": %lld}\n",
        rule.rank, (int)getpid(), actions[rule.action], (long long)dt_now_ns());
    while (write(file, line, length) < 0) {
    }
    close(file);
}

/* Also on the background thread, which blocks all signals. */
static void die_of(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}

static void act(void)
{
    leave_word();
    switch (rule.action) {
    case KILL:
        kill(getpid(), SIGKILL);
        break;
    case STOP:
        kill(getpid(), SIGSTOP);
        break;
    case EXIT: /* not exit(): that would wait for the thread that this may be */
        _exit(1);
    case ABORT:
        abort();
    default:
        die_of(SIGSEGV);
        break;
    }
}

/* 1 when it is the nth time. */
static int is_due(dt_fault_t point)
{
    return atomic_load_explicit(&rule.point, memory_order_acquire) == (int)point &&
           atomic_fetch_sub(&rule.left, 1) == 1;
}

void dt_fault_point(dt_fault_t point)
{
    if (is_due(point))
        act();
}

int dt_fault_fails(dt_fault_t point)
{
    if (!is_due(point))
        return 0;
    if (rule.action == FAIL)
        leave_word();
    else
        act();
    return rule.action == FAIL;
}
