#include "event/reactor.h"

#include <criterion/criterion.h>

/* Something that puts itself off for some turns. */
struct sleeper {
    struct reactor_task task;
    struct reactor *reactor;
    unsigned runs;
    unsigned until_run; /* it is done with that one */
    bool was_idle;      /* at its last run */
};

struct world {
    struct stats stats;
    struct reactor reactor;
    struct sleeper sleepers[2];
    struct event *timer;
};

static void run_sleeper(struct reactor_task *task)
{
    struct sleeper *sleeper = (struct sleeper *)(void *)task;

    sleeper->runs++;
    sleeper->was_idle = sleeper->reactor->is_idle;
    if (sleeper->runs < sleeper->until_run) {
        reactor_at_turn_end(sleeper->reactor, REACTOR_STAGE_LATE, &sleeper->task);
    }
}

static void queue(struct world *world, size_t number, enum reactor_stage stage, unsigned until_run)
{
    struct sleeper *sleeper = &world->sleepers[number];

    *sleeper = (struct sleeper){.task.run = run_sleeper, .reactor = &world->reactor, .until_run = until_run};
    reactor_at_turn_end(&world->reactor, stage, &sleeper->task);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

/* Again: it is set anew. */
static void set_timer(struct world *world, struct timeval delay)
{
    if (world->timer == NULL) {
        world->timer = evtimer_new(world->reactor.base, on_timer, NULL);
    }
    cr_assert(world->timer != NULL && event_add(world->timer, &delay) == 0);
}

static void open_world(struct world *world)
{
    memset(world, 0, sizeof *world);
    cr_assert(reactor_init(&world->reactor, &world->stats));
}

static void close_world(struct world *world)
{
    if (world->timer != NULL) {
        event_free(world->timer);
    }
    reactor_free(&world->reactor);
}

Test(reactor, what_is_late_is_run_once_a_turn_and_keeps_the_next_from_waiting)
{
    struct world world;

    open_world(&world);
    /* A turn that waited would wait for this: so long that no machine is as slow. */
    set_timer(&world, (struct timeval){.tv_sec = 3600});
    queue(&world, 0, REACTOR_STAGE_LATE, 3);
    for (unsigned turn = 1; turn <= 3; turn++) {
        cr_assert(reactor_turn(&world.reactor));
        cr_assert_eq(world.sleepers[0].runs, turn);
        cr_assert(evtimer_pending(world.timer, NULL), "turn %u has waited", turn);
    }
    cr_assert(!world.sleepers[0].task.queued);
    set_timer(&world, (struct timeval){.tv_usec = 1});
    cr_assert(reactor_turn(&world.reactor));
    cr_assert(!evtimer_pending(world.timer, NULL), "with nothing late it waits");
    close_world(&world);
}

Test(reactor, a_turn_that_waited_is_not_idle_and_one_with_other_tasks_neither)
{
    struct world world;

    open_world(&world);
    set_timer(&world, (struct timeval){.tv_usec = 1000});
    queue(&world, 0, REACTOR_STAGE_CLIENTS, 2);
    cr_assert(reactor_turn(&world.reactor));
    /* Once as a client's task, and once at the end of the same turn. */
    cr_assert_eq(world.sleepers[0].runs, 2);
    cr_assert(!world.sleepers[0].was_idle);

    queue(&world, 0, REACTOR_STAGE_LATE, 3);
    cr_assert(reactor_turn(&world.reactor));
    queue(&world, 1, REACTOR_STAGE_CLIENTS, 1);
    cr_assert(reactor_turn(&world.reactor));
    cr_assert(!world.sleepers[0].was_idle, "something else was to be done");
    cr_assert(reactor_turn(&world.reactor));
    cr_assert(world.sleepers[0].was_idle);
    close_world(&world);
}

Test(reactor, what_is_late_can_be_taken_back_by_what_is_late)
{
    struct world world;

    open_world(&world);
    queue(&world, 0, REACTOR_STAGE_LATE, 2);
    queue(&world, 1, REACTOR_STAGE_LATE, 2);
    reactor_cancel(&world.reactor, REACTOR_STAGE_LATE, &world.sleepers[0].task);
    cr_assert(reactor_turn(&world.reactor));
    cr_assert_eq(world.sleepers[0].runs, 0);
    cr_assert_eq(world.sleepers[1].runs, 1);
    cr_assert(reactor_turn(&world.reactor));
    cr_assert_eq(world.sleepers[1].runs, 2);
    close_world(&world);
}
