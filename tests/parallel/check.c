#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *program_name;
static int num_checks, num_failures;
static char hang_line[256];

/* Known before dtrain_init too, when a launcher started the program. */
static int rank_number(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    if (dtrain_rank() >= 0)
        return dtrain_rank();
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (value)
            return (int)strtol(value, NULL, 10);
    }
    return 0;
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, hang_line, strlen(hang_line));
    _exit(written < 0 ? 4 : 3);
}

void check_begin(const char *program, int seconds)
{
    program_name = program;
    snprintf(hang_line, sizeof hang_line, "FAILED: rank %d: %s hangs: not done after %d s\n",
             rank_number(), program, seconds);
    signal(SIGALRM, on_alarm);
    alarm((unsigned)seconds);
}

int check_end(void)
{
    alarm(0);
    fprintf(stderr, "%s: rank %d: %d checks, %d failed\n", program_name, rank_number(), num_checks,
            num_failures);
    return num_failures > 0;
}

int check_that(int ok, const char *what, const char *file, int line)
{
    num_checks++;
    if (ok)
        return 1;
    num_failures++;
    fprintf(stderr, "FAILED: rank %d: %s:%d: %s\n", rank_number(), file, line, what);
    return 0;
}

int check_status(dtrain_status_t status, dtrain_status_t wanted, const char *what, const char *file,
                 int line)
{
    char text[2048];
    snprintf(text, sizeof text, "%s: got \"%s\", not \"%s\"; last error: %s", what,
             dtrain_status_string(status), dtrain_status_string(wanted), dtrain_last_error());
    return check_that(status == wanted, text, file, line);
}

int check_text(const char *text, const char *part, const char *file, int line)
{
    char what[2048];
    snprintf(what, sizeof what, "\"%.200s\" is not in \"%s\"", part, text);
    return check_that(strstr(text, part) != NULL, what, file, line);
}

dtrain_status_t check_init(int timeout_ms)
{
    dtrain_config_t config;
    dtrain_config_init(&config, sizeof config);
    config.timeout_ms = timeout_ms > 0 ? timeout_ms : 20000;
    config.init_timeout_ms = 20000;
    return dtrain_init(&config);
}

dtrain_status_t check_submit(const char *name, float *values, int64_t count, int timeout_ms,
                             dtrain_handle_t *handle)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = values,
                              .out = values,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t options = {.struct_size = sizeof options, .timeout_ms = timeout_ms};
    return dtrain_allreduce_async(&tensor, &options, handle);
}

dtrain_status_t check_finish(dtrain_handle_t handle)
{
    dtrain_status_t status = dtrain_wait(handle);
    CHECK_OK(dtrain_release(handle));
    return status;
}

void check_works(const char *name)
{
    float values[3] = {1, (float)dtrain_rank(), 0};
    int n = dtrain_size();
    CHECK_OK(dtrain_allreduce(name, values, values, 3, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    CHECK(values[0] == (float)n && values[1] == (float)(n * (n - 1) / 2) && values[2] == 0);
}

/* ---- The log --------------------------------------------------------------------------- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t logged = PTHREAD_COND_INITIALIZER;
static char log_text[65536];
static size_t log_length;

static void take_line(dtrain_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)user;
    fprintf(stderr, "%s\n", line);
    pthread_mutex_lock(&log_lock);
    size_t length = strlen(line);
    if (log_length + length < sizeof log_text) {
        memcpy(log_text + log_length, line, length + 1);
        log_length += length;
    }
    pthread_cond_broadcast(&logged);
    pthread_mutex_unlock(&log_lock);
}

void check_log_start(void)
{
    pthread_mutex_lock(&log_lock);
    log_length = 0;
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_lock);
    dtrain_set_log_callback(take_line, NULL);
}

int check_log_has(const char *part)
{
    pthread_mutex_lock(&log_lock);
    int has = strstr(log_text, part) != NULL;
    pthread_mutex_unlock(&log_lock);
    return has;
}

int check_log_wait(const char *part)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int late = 0;
    pthread_mutex_lock(&log_lock);
    while (!strstr(log_text, part) && !late)
        late = pthread_cond_timedwait(&logged, &log_lock, &until) != 0;
    int has = strstr(log_text, part) != NULL;
    pthread_mutex_unlock(&log_lock);
    return has;
}
