/* detect_process.h - watching a process of this node: the kernel tells its end at once, whatever
 * holds its connections open. */
#ifndef DT_COMM_DETECT_DETECT_PROCESS_H
#define DT_COMM_DETECT_DETECT_PROCESS_H

#include <stdint.h>

#include <dtrain/dtrain.h>

/* What a process tells about itself; zeros: not known. */
typedef struct dt_detect_process {
    uint64_t pid_namespace; /* numbers of others mean other processes */
    uint64_t start_time;    /* since boot, in ticks: tells a process from a later one of its pid */
    int32_t pid;
} dt_detect_process_t;

void dt_detect_process_self(dt_detect_process_t *self);

/*
 * *fd becomes readable when `process` has ended; -1 when it cannot be watched from `self`: other
 * process namespaces, or an old kernel. COMMUNICATION when it has ended already, OUT_OF_MEMORY
 * without descriptors.
 */
dtrain_status_t dt_detect_process_watch(const dt_detect_process_t *self,
                                        const dt_detect_process_t *process, int *fd);

#endif
