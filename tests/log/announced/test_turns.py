"""When a writer may create, and when it looks."""

import pytest

from sparklog.log.announced.turns import Turns, is_on

LISTING_MS, CREATE_MS = 40.0, 60.0
CYCLE_MS = LISTING_MS + CREATE_MS
PACE_MS, LEAD_MS = 3.2 * CREATE_MS, LISTING_MS + CREATE_MS / 2
EVERYBODY = [f"announced:{number}" for number in range(8)]


def turns(chance=1.0, listing_ms=LISTING_MS, create_ms=CREATE_MS):
    made = Turns(lambda: chance)
    made.note_took(listing_ms, create_ms)
    return made


def several(*entries, chance=1.0):
    """Turns of a writer that has seen entries, one each 100 ms until tick 0; each is as many digits of announcers."""
    made = turns(chance)
    for number, entry in enumerate(entries):
        writers = [EVERYBODY[int(digit)] for digit in entry]
        made.observe(writers, 100.0 * (number + 1 - len(entries)), version=number, age_ms=CREATE_MS / 2)
    return made


def draw(made, own="", *, now=0.0, left_ms=60_000.0, is_creator=False):
    return made.draw(now, is_creator=is_creator, left_ms=left_ms, own=[f"announced:{own}"])


def test_group_commit_is_on_for_five_seconds_after_an_entry_that_asked_for_it():
    assert not is_on(float("-inf"), 0.0)
    assert is_on(0.0, 5_000.0)
    assert not is_on(0.0, 5_001.0)


def test_a_lone_writer_goes_at_once():
    assert turns().draw(100.0, is_creator=False, left_ms=10_000) == 100.0


def test_of_few_who_created_the_newest_version_goes_at_once():
    busy = turns()
    busy.observe(["1", "2", "3"], 100.0)
    assert busy.draw(100.0, is_creator=True, left_ms=10_000) == 100.0
    assert busy.draw(100.0, is_creator=False, left_ms=10_000) == pytest.approx(200.0)


def test_others_count_for_a_second_and_the_writer_itself_does_not():
    busy = turns()
    busy.observe(["1", "announced:2"], 0.0, age_ms=0.0)
    assert busy.draw(1_000.0, is_creator=False, left_ms=10_000, own=["announced:2"]) == pytest.approx(1_000 + 100 / 3)
    assert busy.draw(1_001.0, is_creator=False, left_ms=10_000, own=["announced:2"]) == 1_001.0


@pytest.mark.parametrize(("lost_races", "wait_ms"), [(1, 100), (8, 800), (9, 800)])
def test_after_a_loss_the_turn_comes_the_later_the_more_were_lost(lost_races, wait_ms):
    assert turns().draw_after_loss(0.0, lost_races=lost_races, left_ms=60_000) == pytest.approx(wait_ms)


def test_no_time_is_left_for_a_wait_at_the_deadline():
    busy = several("01234567")
    assert draw(busy, left_ms=0) == draw(busy, "0", left_ms=-1) == 0.0
    assert busy.draw_after_loss(0.0, lost_races=3, left_ms=-5) == 0.0
    assert busy.put_off_ms([], left_ms=-5) == 0.0


def test_a_turn_comes_within_a_second_and_a_half_and_a_quarter_of_the_time_left():
    busy = turns()
    busy.observe([f"announced:{number}" for number in range(1_000)], 0.0)
    assert draw(busy, "none") == 1_500.0
    assert draw(busy, "none", left_ms=400) == 100.0


def test_what_took_how_long_is_what_most_entries_say_and_a_second_at_most():
    for took in ([(40, 60), (40, 60), (900, 800)], [(0, 60), (40, 0), (40, 60)], [(40, 60), (-1, float("nan"))]):
        made = Turns(lambda: 0.0)
        for each in took:
            made.note_took(*each)
        assert made.cycle_ms == 100
    made.note_took(60_000, 60_000)
    for _ in range(20):
        made.note_took(60_000, 60_000)
    assert made.cycle_ms == made.pace_ms == 1_000


def test_a_lost_create_bounds_how_long_one_takes_until_one_is_known():
    made = Turns(lambda: 0.0)
    made.note_lost(10.0)
    assert made.pace_ms == pytest.approx(32)
    made.note_took(0.0, 60.0)
    made.note_lost(10.0)
    assert made.pace_ms == pytest.approx(192)


def test_a_few_slow_creates_do_not_slow_the_pace_down():
    made = Turns(lambda: 0.0)
    for create_ms in (60, 200, 210, 220):
        made.note_took(40, create_ms)
    assert made.cycle_ms == 240
    assert made.pace_ms == pytest.approx(PACE_MS)
    made.note_took(40, 600)  # but a version comes no sooner than it takes to list and create
    made.note_took(400, 600)
    made.note_took(400, 600)
    made.note_took(400, 600)
    made.note_took(400, 600)
    assert made.pace_ms == pytest.approx(3.2 * 200)


def test_where_several_write_one_begins_so_that_the_version_comes_at_the_pace():
    busy = several("01234567")
    at = sorted(draw(busy, str(number)) for number in range(8))
    assert at[0] == pytest.approx(PACE_MS - LEAD_MS)
    assert at[1] == pytest.approx(at[0] + CYCLE_MS)  # who steps in finds the version, if it comes


def test_also_who_created_the_newest_version_waits_for_the_pace():
    assert draw(several("01234567"), "none", is_creator=True) > PACE_MS - LEAD_MS


def test_the_order_differs_from_version_to_version():
    firsts = set()
    for version in range(20):
        busy = turns()
        busy.observe(EVERYBODY, 0.0, version=version, age_ms=CREATE_MS / 2)
        at = [draw(busy, str(number)) for number in range(8)]
        firsts.add(at.index(min(at)))
    assert len(firsts) > 3


def test_whoever_is_due_comes_first():
    """Each is in two of three versions, so whoever isn't in the newest one has a flush by now."""
    busy = several("0123", "4501", "2345", chance=0.99)
    order = sorted(range(6), key=lambda number: draw(busy, str(number)))
    assert {*order[:2]} == {0, 1}


def test_who_is_in_no_recent_entry_draws_a_turn_behind_the_first():
    for chance in (0.0, 1.0):
        busy = several("01234567", chance=chance)
        at = draw(busy, "none")
        assert at == pytest.approx(PACE_MS - LEAD_MS + 1.2 * CYCLE_MS + chance * 8 * CYCLE_MS / 3)


def test_a_turn_that_is_over_is_now():
    busy = several("01234567")
    assert min(draw(busy, str(number), now=500.0) for number in range(8)) == 500.0


def test_for_three_paces_a_turn_may_be_put_off_where_several_write():
    assert several("01234567").put_off_ms([], left_ms=60_000) == pytest.approx(3 * PACE_MS)
    assert several("01234567").put_off_ms([], left_ms=400) == 100.0
    assert several("012").put_off_ms([], left_ms=60_000) == 0.0


def next_look(busy, now=0.0, *, turn_at=1e9, uploaded=0.0):
    return busy.next_look(now, turn_at=turn_at, uploaded_ticks_ms=uploaded)


def test_few_writers_look_three_times_a_cycle():
    assert next_look(several("012"), 50.0) == pytest.approx(50 + 0.35 * CYCLE_MS)


def test_the_first_look_is_a_little_later_than_a_version_is_expected():
    busy = several("01234567")
    first = next_look(busy)
    assert first == pytest.approx(PACE_MS + 0.1 * CYCLE_MS)
    busy.note_tail(first)
    assert next_look(busy, first + 20) == pytest.approx(first + 0.5 * CYCLE_MS)
    busy.note_tail(first)
    assert next_look(busy, first + 20) == pytest.approx(first + 0.75 * CYCLE_MS)
    assert next_look(busy, first + 500) == first + 500


@pytest.mark.parametrize(
    ("shared", "of", "creates", "first", "then", "step"), [(1, 2, 2.7, 0.05, 0.3, 0.6), (2, 5, 3.2, 0.1, 0.5, 1.0)]
)
def test_versions_come_more_quickly_where_others_in_the_process_make_most_looks(shared, of, creates, first, then, step):
    busy = several("01234567")
    for number in range(of):
        busy.note_look(None if number < shared else 20.0)
    assert busy.pace_ms == pytest.approx(creates * CREATE_MS)
    look_at = next_look(busy)
    assert look_at == pytest.approx(creates * CREATE_MS + first * CYCLE_MS)
    busy.note_tail(look_at)
    assert next_look(busy, look_at) == pytest.approx(look_at + then * CYCLE_MS)
    drawn = sorted(draw(busy, own) for own in "01234567")
    assert drawn[1] - drawn[0] == pytest.approx(step * CYCLE_MS)


def test_the_look_beside_a_listing_ends_with_the_quickest_listing():
    busy = turns()
    assert busy.look_beside_listing_ms == 0.0  # how long a look takes isn't known
    busy.note_look(None)
    busy.note_look(30.0)
    assert busy.look_beside_listing_ms == pytest.approx(LISTING_MS - 30)
    busy.note_took(0.0, CREATE_MS)  # without a listing
    assert busy.look_beside_listing_ms == pytest.approx(LISTING_MS - 30)
    busy.note_took(0.4, CREATE_MS)  # its own, of a store that is near, whatever others tell
    assert busy.look_beside_listing_ms == 0.0


def test_versions_that_come_more_slowly_than_the_pace_are_expected_so():
    busy = turns()
    for number in range(8):
        busy.observe(EVERYBODY, 300.0 * number, version=number, age_ms=CREATE_MS / 2)
    assert next_look(busy, 2_100.0) == pytest.approx(2_100 + 300 + 0.1 * CYCLE_MS)


def test_who_uploaded_too_late_for_the_next_version_looks_later():
    busy = several("01234567")
    assert next_look(busy, uploaded=PACE_MS) == pytest.approx(PACE_MS + (PACE_MS - LEAD_MS) / 2)
    turn_at = PACE_MS + 0.3 * CYCLE_MS
    assert next_look(busy, uploaded=PACE_MS, turn_at=turn_at) == pytest.approx(PACE_MS + 0.05 * CYCLE_MS)
    assert next_look(busy, uploaded=PACE_MS, turn_at=0.0) == pytest.approx(PACE_MS)


def test_who_was_away_looks_once_for_all_that_is_expected():
    busy = several("01234567")
    assert not busy.is_behind(PACE_MS)
    now = 2.5 * PACE_MS
    assert busy.is_behind(now)
    assert busy.ahead(now) == 2
    busy.note_tail(now)
    assert not busy.is_behind(now + 20)
    assert busy.ahead(900.0) == 4
    assert not several("012").is_behind(900.0)


def test_of_how_long_ago_a_version_is_said_to_be_no_more_counts_than_looks_allow():
    def seen(age_ms):
        busy = several("01234567")
        busy.note_tail(120.0)
        busy.observe(EVERYBODY, 170.0, version=9, age_ms=age_ms)
        return next_look(busy, 0.0) - PACE_MS - 0.1 * CYCLE_MS

    assert seen(CREATE_MS / 2 + 20) == pytest.approx(150)
    assert seen(60_000) == pytest.approx(120)  # it wasn't there then
    assert seen(-60_000) == pytest.approx(170)
    assert seen(None) == pytest.approx(170 - CREATE_MS / 2)  # its own


@pytest.mark.parametrize(("entries", "ahead"), [(0, 1), (26, 1), (80, 3), (1_000, 8)])
def test_a_look_of_few_reads_as_many_versions_as_are_to_be_expected(entries, ahead):
    busy = turns()
    for _ in range(entries):
        busy.observe([], 0.0)
    assert busy.ahead(500.0) == ahead
