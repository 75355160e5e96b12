/*
 * check.h - checks for programs that run under mpirun. A failed check is printed with its rank and
 * place, and the program goes on, so that the ranks stay together; check_end's result is what main
 * returns. A program that hangs is ended with a line that says so.
 */
#ifndef DT_TEST_CHECK_H
#define DT_TEST_CHECK_H

#include <dtrain/dtrain.h>

/* `seconds` is how long the program may take at most. */
void check_begin(const char *program, int seconds);

/* 0, or 1 after a failure; prints how many checks there were. */
int check_end(void);

int check_that(int ok, const char *what, const char *file, int line);
int check_status(dtrain_status_t status, dtrain_status_t wanted, const char *what, const char *file,
                 int line);
int check_text(const char *text, const char *part, const char *file, int line);

#define CHECK(condition) check_that((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_STATUS(expression, wanted) \
    check_status(expression, wanted, #expression, __FILE__, __LINE__)
#define CHECK_OK(expression) CHECK_STATUS(expression, DTRAIN_OK)
/* `part` stands in this thread's last error. */
#define CHECK_ERROR_HAS(part) check_text(dtrain_last_error(), part, __FILE__, __LINE__)
#define CHECK_TEXT(text, part) check_text(text, part, __FILE__, __LINE__)

/* dtrain_init with operations that end after 20 s, or the given number of milliseconds. */
dtrain_status_t check_init(int timeout_ms);

/* An allreduce that has to work. */
void check_works(const char *name);

/* Submits a float32 sum in place. */
dtrain_status_t check_submit(const char *name, float *values, int64_t count, int timeout_ms,
                             dtrain_handle_t *handle);

/* Waits and releases; the status of the wait. */
dtrain_status_t check_finish(dtrain_handle_t handle);

/* The lines that libdtrain has logged since the last call of check_log_start; they go to stderr
 * too. check_log_wait waits for a line with `part`, for at most 20 s: 1 when it came. */
void check_log_start(void);
int check_log_has(const char *part);
int check_log_wait(const char *part);

#endif
