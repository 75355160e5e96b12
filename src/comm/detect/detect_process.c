#include "comm/detect/detect_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

#define START_TIME_FIELD 22 /* of /proc/PID/stat, counted from 1; the name is the second */

/* 0 when it is not known. */
static uint64_t read_start_time(int32_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    /* The name stands in parentheses and may have spaces and parentheses itself. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < START_TIME_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

void dt_detect_process_self(dt_detect_process_t *self)
{
    struct stat space;
    *self = (dt_detect_process_t){.pid = (int32_t)getpid()};
    if (stat("/proc/self/ns/pid", &space) == 0)
        self->pid_namespace = (uint64_t)space.st_ino;
    self->start_time = read_start_time(self->pid);
}

static dtrain_status_t fail_ended(const dt_detect_process_t *process)
{
    return dt_fail(DTRAIN_ERR_COMMUNICATION, "process %d has ended", (int)process->pid);
}

dtrain_status_t dt_detect_process_watch(const dt_detect_process_t *self,
                                        const dt_detect_process_t *process, int *fd)
{
    *fd = -1;
    if (process->pid <= 0 || self->pid_namespace == 0 ||
        process->pid_namespace != self->pid_namespace)
        return DTRAIN_OK;
    int opened = (int)syscall(SYS_pidfd_open, process->pid, 0u);
    if (opened < 0 && errno == ESRCH)
        return fail_ended(process);
    if (opened < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no descriptor to watch process %d: %s",
                       (int)process->pid, strerror(errno));
    if (opened < 0) /* ENOSYS, or a sandbox that forbids it */
        return DTRAIN_OK;
    uint64_t start_time = read_start_time(process->pid);
    if (process->start_time != 0 && start_time != 0 && start_time != process->start_time) {
        close(opened);
        return fail_ended(process);
    }
    *fd = opened;
    return DTRAIN_OK;
}
