/* report.h - a verdict, for people and for programs. */
#ifndef DT_TOOLS_FLIGHT_REPORT_H
#define DT_TOOLS_FLIGHT_REPORT_H

#include <stdio.h>

#include "tools/flight/judge.h"

void flight_report(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict);

/* One object: size, reason, cut, ranks, waiting, behind (the ranks), lost (a rank, or null). */
void flight_report_json(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict);

#endif
