#include "comm/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

#define LIBRARY "libdtrain_nccl.so"

static dtrain_status_t fail(dtrain_status_t status, const char *text)
{
    return dt_fail(status, "%s", text);
}

static void log_line(dtrain_log_level_t level, const char *subsystem, const char *text)
{
    dt_log(level, subsystem, "%s", text);
}

/* The library's path beside the one that this function is in. */
static void find_path(char *path, size_t cap)
{
    Dl_info info;
    const char *slash = NULL;
    int is_known = dladdr((const void *)LIBRARY, &info) != 0 && info.dli_fname;
    if (is_known)
        slash = strrchr(info.dli_fname, '/');
    if (slash)
        snprintf(path, cap, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, LIBRARY);
    else
        snprintf(path, cap, "%s", LIBRARY);
}

dtrain_status_t dt_device_load(const void *hint, int local_rank, dt_device_t **device)
{
    static const dt_device_host_t host = {
        .version = DT_DEVICE_VERSION, .fail = fail, .last_error = dt_last_error, .log = log_line};
    char path[4096];
    find_path(path, sizeof path);
    /* It stays loaded: CUDA cannot be loaded twice in a process. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "no GPU path: %s", dlerror());
    dt_device_open_fn_t open = NULL;
    *(void **)&open = dlsym(library, DT_DEVICE_OPEN);
    if (!open)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "no GPU path: %s has no %s", path, DT_DEVICE_OPEN);
    return open(&host, hint, local_rank, device);
}
