/* Regions of a program for Polymeter: parts with a name, which threads enter and leave. Link with
 * -lpolymeter_regions. Outside of a job nothing is counted. Any thread may call these functions; signal handlers
 * must not. Names end with a zero, and are cut at 128 bytes; a process has at most 128 of them, and further ones are
 * counted together as "(other)". */
#ifndef POLYMETER_H
#define POLYMETER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Enters a region. Regions may be nested, also in themselves. */
void polymeter_region_begin(const char *name);

/* Leaves a region, and those inside it whose end was forgotten. */
void polymeter_region_end(const char *name);

/* Sends what was counted, and waits for it at most a second. Returns 0, or -1 if the agent has not accepted it. This happens at exit by itself, and is needed where a
 * process ends without exit(): by _exit(), exec or a signal. */
int polymeter_regions_flush(void);

#ifdef __cplusplus
}
#endif
#endif
