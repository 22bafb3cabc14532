import pytest

from spacetime_en import InputError
from spacetime_en.data.columns import Columns, find_columns


@pytest.mark.parametrize(
    ("names", "frame", "node", "positions"),
    [
        ("frame id x y", "frame", "id", "x y"),
        ("Frame_ID,agent_id,X,Y,Z", "Frame_ID", "agent_id", "X Y Z"),
        ("FRAME;TRACK_ID;POSITION_X;POSITION_Y", "FRAME", "TRACK_ID", "POSITION_X POSITION_Y"),
        ("t,particle,pos_x,pos_y,pos_z", "t", "particle", "pos_x pos_y pos_z"),
        ("name,timestamp,y,x", "timestamp", "name", "x y"),
        ("frame id,track-id,x [m],y [m]", "frame id", "track-id", "x [m],y [m]"),
    ],
)
def test_usual_names(names, frame, node, positions):
    sign = next((s for s in ",;" if s in names), " ")
    found = find_columns(names.split(sign), Columns())
    assert (found.frame, found.id) == (frame, node)
    assert list(found.positions) == positions.split("," if "," in positions else None)


def test_what_else_there_is():
    names = ["frame", "time", "id", "x", "y", "vx", "vy", "mass", "speed", "scene", "split"]
    found = find_columns(names, Columns())
    assert not found.timed
    assert found.clock == "time"
    assert found.velocities == ("vx", "vy")
    assert found.attributes == {"mass": "mass"}
    assert (found.recording, found.split, found.ignored) == ("scene", "split", ("speed",))
    assert "ignored: speed" in found.in_words()


def test_names_that_the_user_gives_come_first():
    names = ["frame", "id", "x", "y", "z", "who", "left", "up", "t", "Speed [m/s]"]
    wanted = Columns(time="t", id="WHO", positions=("left", "up"), attributes=("Speed [m/s]",))
    found = find_columns(names, wanted)
    assert (found.frame, found.timed, found.id) == ("t", True, "who")
    assert found.positions == ("left", "up")
    assert found.attributes == {"speed": "Speed [m/s]"}
    assert find_columns(["t [s]", "id", "x [m]", "y [m]"], Columns()).units == {
        "length_unit": "m",
        "time_unit": "s",
    }


@pytest.mark.parametrize(
    ("names", "wanted", "words"),
    [
        ("frame id a b", {}, "positions: no columns are called x and y; there are frame, id, a, b"),
        ("frame id x", {}, "positions: no columns are called x and y"),
        ("who x y", {}, "frame: no column is called frame, t or time; there are who, x, y"),
        ("frame x y", {}, "id: no column is called id, agent_id or track_id; there are frame, x"),
        ("frame id lat lon", {}, "lat, lon are angles, and no lengths; convert them to metres"),
        ("frame id x y", {"frame": "f"}, "frame: there is no column 'f'; there are frame, id, x"),
        ("frame id x y", {"id": "frame"}, "the column 'frame' cannot be two things at once"),
        ("frame id x y x", {}, "the column 'x' stands twice"),
        ("frame id x y vx", {"velocities": ("vx",)}, "velocities: expected as many columns as"),
        ("frame id x y 1kg", {"attributes": ("1kg",)}, "'1kg' cannot be a name"),
        (" ".join(["frame", "id", *map(str, range(30))]), {}, "and 20 more"),
    ],
)
def test_what_is_not_there(names, wanted, words):
    with pytest.raises(InputError) as caught:
        find_columns(names.split(), Columns(**wanted))
    assert words in str(caught.value)


def test_names_of_attributes_are_no_paths():
    names = ["frame", "id", "x", "y", "../../mass"]
    found = find_columns(names, Columns(attributes=("../../mass",)))
    assert found.attributes == {"mass": "../../mass"}
