"""Files from others run no code, lead nowhere else, and take no more memory than they hold."""

import gzip
import io
import os
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data.readers import archives, read
from tests.data.files import AMC, ASF, X, header, npy, npz, tar, tar_header

TB = 2**40
MOTION = {"07.asf": ASF, "07_01.amc": AMC}


def refused(path, **options):
    with pytest.raises(InputError) as caught:
        read(path, **options)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert sentence.isprintable()
    assert len(sentence) < 500
    return sentence


class Bomb:
    """What a pickle may do when opened."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"x.npy": npy(X), "../../v.npy": npy(X)}, "'../../v' cannot be a name"),
        ({"x.npy": npy(X), "/etc/v.npy": npy(X)}, "'/etc/v' cannot be a name"),
        ({"x.npy": npy(X), "a\nb.npy": npy(X)}, r"'a\nb' cannot be a name"),
        ({"x.npy": npy(X), "[/x].npy": npy(X)}, "'[/x]' cannot be a name"),
        ({"x.npy": npy(X), "x": npy(X)}, "'x' stands twice"),
        ({"x.npy": header((10**6, 10**6))}, "is cut off or damaged"),
        ({"x.npy": header((10**12, 1, 1)) + bytes(800)}, "is cut off or damaged"),
        ({"x.npy": npy(X)[:-1]}, "is cut off or damaged"),
        ({"x.npy": npy(np.array(3.0))}, "x: expected shape"),
        ({"x.npy": npy(X + 1j)}, "x: expected real numbers, found values of type complex128"),
        ({"x.npy": npy(X.astype(str))}, "expected numbers, found values of type <U"),
        ({"x.npy": b"hello"}, "'x.npy': is no .npy file"),
        ({"x.npy": pickle.dumps(Bomb())}, "'x.npy': is no .npy file"),
        ({f"a{i}.npy": npy(X) for i in range(600)}, "at most 500 attributes, found 600"),
        ({}, "expected an array 'x' of positions, found []"),
    ],
)
def test_npz(tmp_path, members, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in refused(npz(tmp_path / "a.npz", members))
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_npz_of_another_byte_order_and_column_by_column(tmp_path):
    members = {"x.npy": npy(X.astype(">f4")), "v.npy": npy(np.asfortranarray(X)), "box.npy": None}
    members["box.npy"] = npy(np.array([9, 9, 9], dtype=">i2"))
    found = read(npz(tmp_path / "a.npz", members))
    assert np.array_equal(found.x, X.astype("f4"))
    assert np.array_equal(found.v, X)


def test_a_pickle_by_another_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.npz").write_bytes(pickle.dumps(Bomb()))
    assert "no .npz" in refused(tmp_path / "a.npz")
    np.save(tmp_path / "loc_train.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    assert "expected numbers, found values of type object" in refused(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_what_unpacks_to_more_than_there_is_memory(tmp_path, monkeypatch):
    zeros = npy(np.zeros((1000, 100, 10)))
    packed = npz(tmp_path / "a.npz", {"x.npy": zeros}, zipfile.ZIP_DEFLATED)
    assert packed.stat().st_size < len(zeros) / 500
    assert len(read(packed).times) == 1000
    monkeypatch.setattr("spacetime_en._util.machine.free_memory", lambda: 20_000_000)
    assert "takes 24 MB of memory, and 20 MB are free" in refused(packed)


def test_a_zip_that_claims_more_than_deflate_can_do(tmp_path):
    made = npz(tmp_path / "a.npz", {"x.npy": header((TB // 8,))}, zipfile.ZIP_DEFLATED)
    content = made.read_bytes()
    with zipfile.ZipFile(made) as archive:
        size = archive.getinfo("x.npy").file_size
    lie = content.replace(size.to_bytes(4, "little"), (2**32 - 2).to_bytes(4, "little"))
    made.write_bytes(lie)
    assert "claims 4.29 GB of numbers, which its" in refused(made)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"loc_a": npy(X[0, 0])}, "expected loc_*.npy (num, T, n, N)"),
        ({"loc_a": npy(X), "vel_a": npy(X[0])}, "expected vel_*.npy (num, T, n, N)"),
        ({"loc_a": npy(X), "loc_b": npy(X[:, :1])}, "loc_*.npy do not fit each other"),
        ({"loc_a": npy(X), "loc_b": npy(X), "vel_a": npy(X)}, "vel_b.npy: is missing, but"),
        ({"loc_a": header((TB, 1, 1, 1))}, "is cut off or damaged"),
        ({"loc_a": npy(np.array(1.0))}, "found ()"),
        ({"loc_a": npy(X), "charges_a": npy(np.ones((3, 7)))}, "charge: expected shape"),
    ],
)
def test_npy_folder(tmp_path, members, words):
    for name, content in members.items():
        (tmp_path / f"{name}.npy").write_bytes(content)
    assert words in refused(tmp_path)


# --- links, pipes, devices ------------------------------------------------------------------------


def test_links_inside_folders_are_not_followed(tmp_path):
    np.save(tmp_path / "secret.npy", X)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "loc_train.npy").symlink_to(tmp_path / "secret.npy")
    assert "is a link" in refused(tmp_path / "folder")
    (tmp_path / "motion").mkdir()
    (tmp_path / "07.asf").write_text(ASF)
    (tmp_path / "motion" / "07.asf").symlink_to(tmp_path / "07.asf")
    (tmp_path / "motion" / "07_01.amc").write_text(AMC)
    assert "is a link" in refused(tmp_path / "motion")


def test_a_link_that_the_user_names_is_followed(tmp_path):
    np.savez(tmp_path / "a.npz", x=X)
    (tmp_path / "b.npz").symlink_to(tmp_path / "a.npz")
    assert np.array_equal(read(tmp_path / "b.npz").x, X)


@pytest.mark.parametrize("ending", [".npz", ".h5", ".tar.gz", ".tar", ".csv", ".txt.gz"])
def test_pipes_and_devices_are_no_files(tmp_path, ending):
    os.mkfifo(tmp_path / f"a{ending}")
    assert "is no regular file" in refused(tmp_path / f"a{ending}")
    (tmp_path / f"b{ending}").symlink_to("/dev/zero")
    assert "is no regular file" in refused(tmp_path / f"b{ending}")


# --- HDF5 -----------------------------------------------------------------------------------------


@pytest.fixture
def h5(tmp_path):
    """A function that makes a file with positions, and more."""
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")

    def make(change):
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["x"] = X[0]
        with h5py.File(tmp_path / "a.h5", "w") as file:
            group = file.create_group("particles/all")
            group["position/value"] = X[0]
            change(h5py, group)
        return tmp_path / "a.h5"

    return make


def replaced(make):
    """Something else in place of the positions."""

    def change(h5py, group):
        del group["position/value"]
        make(h5py, group)

    return change


def virtual(h5py, group):
    layout = h5py.VirtualLayout(X[0].shape, dtype=float)
    layout[:] = h5py.VirtualSource("other.h5", "x", X[0].shape)
    group.create_virtual_dataset("position/value", layout)


def partly_periodic(h5py, group):
    group["box/edges"] = np.ones(3)
    group["box"].attrs["boundary"] = ["periodic", "periodic", "none"]


def members(**data):
    def change(h5py, group):
        for name, values in data.items():
            group[name] = values

    return change


def claims(**options):
    def make(h5py, group):
        group.create_dataset("position/value", (10**6, 10**3, 10**3), dtype="f8", **options)

    return replaced(make)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            replaced(
                lambda h5, g: g.__setitem__("position/value", h5.ExternalLink("other.h5", "x"))
            ),
            "is a link to something else",
        ),
        (
            replaced(lambda h5, g: g.__setitem__("position/value", h5.SoftLink("/elsewhere"))),
            "is a link to something else",
        ),
        (
            replaced(
                lambda h5, g: g["position"].create_dataset(
                    "value", X[0].shape, "f8", external=[("other.h5", 0, h5.h5f.UNLIMITED)]
                )
            ),
            "lies in other files",
        ),
        (replaced(virtual), "lies in other files"),
        (claims(), "claims 8000000000000 bytes of numbers, which are not in the file"),
        (claims(chunks=True), "claims 8000000000000 bytes of numbers"),
        (claims(chunks=(10, 10, 10), compression="gzip"), "claims 8000000000000 bytes"),
        (partly_periodic, "box: the boundary is ['none', 'periodic']"),
        (replaced(lambda h5, g: g.__setitem__("position/value", "hello")), "expected numbers"),
        (
            replaced(lambda h5, g: g.__setitem__("position/value", h5.Empty("f8"))),
            "expected an arr",
        ),
        (replaced(lambda h5, g: g.__setitem__("position/value", 3.0)), "expected positions (T, N"),
        (replaced(lambda h5, g: g.create_group("position/value")), "expected an array of numbers"),
        (replaced(lambda h5, g: None), "is missing"),
        (members(id=np.zeros((6, 3), int)), "id: expected shape (6, 4)"),
        (members(id=np.eye(6, 4, dtype=int)), "the particles change from frame to frame"),
        (members(id=np.array([[0, 1, 2, 3], *[[3, 2, 1, 0]] * 5]), mass=np.arange(4.0)), "whose"),
        (members(velocity=np.zeros((2, 4, 3))), "v: expected the shape of x"),
        (members(mass=np.full(4, np.nan)), "mass: NaN or infinite"),
    ],
)
def test_h5md(h5, change, words):
    assert words in refused(h5(change))


def test_ids_in_one_order_leave_all_as_it_is(h5):
    found = read(h5(members(id=np.array([3, 1, 2, 0]), mass=np.arange(4.0))))
    assert np.array_equal(found.x[0], X[0])
    assert found.attributes["mass"][0].tolist() == [0, 1, 2, 3]


def test_odd_units_are_kept_as_texts(h5):
    def change(h5py, group):
        group["position/value"].attrs["unit"] = "[/x] $"
        group["position/time"] = 1.0
        group["position/time"].attrs["unit"] = b"\xff" * 1000

    found = read(h5(change))
    assert found.meta["length_unit"] == "[/x] $"
    assert len(found.meta["time_unit"]) == 100


# --- motion capture -------------------------------------------------------------------------------


def test_a_tar_file_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_UNPACKED", 1 << 20)
    plain = tar(tmp_path / "a.tar", {"zeros": "\0" * (8 << 20), **MOTION})
    with gzip.open(tmp_path / "a.tar.gz", "wb") as packed:
        packed.write(plain.read_bytes())
    assert (tmp_path / "a.tar.gz").stat().st_size < 10_000
    assert "unpacks to more than 1.05 MB" in refused(tmp_path / "a.tar.gz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tar_header("a.amc", TB), "unpacks to more than|of memory|expected a folder or a tar"),
        (tar_header("a.amc", 8 << 30, b"x"), "unpacks to more than"),
        (tar_header("a.amc", 8 << 30, b"L"), "unpacks to more than"),
        (tar_header("a.txt", -512), "is damaged|expected a folder or a tar"),
        (tar_header("a.txt", -1024) * 2, "is damaged|expected a folder or a tar"),
        (tar_header("a.amc", -5), "is damaged|expected a folder or a tar"),
        (tar_header("a.amc", 100) + b"1\n", "expected a folder or a tar"),
        (b"".join(tar_header("x", 0, b"x") for _ in range(3000)), "expected a folder or a tar"),
        (b"hello", "expected a folder or a tar"),
        (b"", "expected a folder or a tar|holds no .amc"),
    ],
)
def test_tar_files_of_odd_sizes(tmp_path, content, words):
    (tmp_path / "a.tar").write_bytes(content)
    assert any(word in refused(tmp_path / "a.tar") for word in words.split("|"))


def test_a_sparse_member_claims_zeros_that_are_not_there(tmp_path):
    info = tarfile.TarInfo("07_01.amc")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(TB),
        "GNU.sparse.name": "07_01.amc",
    }
    info.type, info.size = tarfile.REGTYPE, 512
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    assert "has holes" in refused(tmp_path / "a.tar")


def test_names_in_a_tar_file_are_only_names(tmp_path):
    found = read(tar(tmp_path / "a.tar", {"../../07.asf": ASF, "/abs/07_01.amc": AMC}))
    assert found.meta["trials"] == ["07_01"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]
    assert "cannot be the name" in refused(tar(tmp_path / "b.tar", {"a\x1b[31m.amc": AMC}))


@pytest.mark.parametrize(
    ("asf", "words"),
    [
        (ASF.replace("name shin", "name ../shin").replace("thigh shin", "thigh ../shin"), "a name"),
        (ASF.replace("name shin", "name [/x]"), "'[/x]' cannot be a name"),
        (ASF.replace("name shin", "name root"), "each once: root"),
        (ASF.replace("name shin", "name thigh"), "each once: thigh"),
        (ASF.replace("direction 0 -1 0", "direction 0 -1"), "expected 3 finite numbers"),
        (ASF.replace("direction 0 -1 0", "direction 0 nan 0"), "expected 3 finite numbers"),
        (ASF.replace("length 2.0", "length inf"), "expected 1 finite numbers"),
        (ASF.replace("length 2.0", "length 1e300"), "x: "),
        (ASF.replace("order TX TY TZ", "order TX TX TX"), "expected the order of TX, TY"),
        (ASF.replace(":units", ":"), "is no ASF skeleton"),
        (ASF + ":bonedata\n" + "begin\nname a\nend\n" * 3, "is no ASF skeleton"),
    ],
)
def test_skeletons(tmp_path, asf, words):
    (tmp_path / "07.asf").write_text(asf)
    (tmp_path / "07_01.amc").write_text(AMC)
    assert words in refused(tmp_path)


def bones(count):
    names = [f"b{i}" for i in range(count)]
    block = "begin\nname {}\ndirection 0 1 0\nlength 1\naxis 0 0 0 XYZ\nend\n"
    hang = "".join(f"{a} {b}\n" for a, b in zip(["root", *names], names, strict=False))
    head = ASF[: ASF.index(":bonedata")]
    body = "".join(block.format(name) for name in names)
    return f"{head}:bonedata\n{body}:hierarchy\nbegin\n{hang}end\n"


def test_a_skeleton_has_only_so_many_bones(tmp_path):
    (tmp_path / "07.asf").write_text(bones(100_000))
    (tmp_path / "07_01.amc").write_text("1\nroot 0 0 0 0 0 0\n2\nroot 0 0 0 0 0 0\n")
    assert "at most 498 bones" in refused(tmp_path)
    (tmp_path / "07.asf").write_text(bones(100))
    assert read(tmp_path).x.shape == (1, 2, 101, 3)


def test_short_motions_of_long_skeletons_need_memory(tmp_path, monkeypatch):
    (tmp_path / "07.asf").write_text(bones(400))
    frames = "".join(f"{i}\nroot 0 0 0 0 0 0\n" for i in range(1, 1001))
    (tmp_path / "07_01.amc").write_text(frames)
    monkeypatch.setattr("spacetime_en._util.machine.free_memory", lambda: 50_000_000)
    assert "07_01.amc: motion: to read it takes 115 MB of memory" in refused(tmp_path)


@pytest.mark.parametrize(
    "amc",
    [
        AMC.replace("shin 40", "shin 1e999"),
        AMC.replace("shin 40", "shin nan"),
        AMC.replace("root 1 2 3 90", "root 1 2 3 1e400"),
        AMC.replace("root 1 2 3 90 0 0\n", ""),
        AMC.replace("\n2\n", "\n" + "9" * 5000 + "\n"),
        "1\nthigh 1 2 3\n",
        "\xff\xfe",
        "",
    ],
)
def test_motions(tmp_path, amc):
    (tmp_path / "07.asf").write_text(ASF)
    (tmp_path / "07_01.amc").write_text(amc, encoding="latin-1")
    refused(tmp_path)


# --- tables ---------------------------------------------------------------------------------------

TABLE = "frame,id,x,y\n0,a,1,2\n1,a,3,4\n0,b,1,2\n"


@pytest.mark.parametrize(
    "name", ["../../b", "a\nb", "\x1b[31m", "[/x]", "=1+1", "é" * 200, "'; --"]
)
def test_names_in_tables_are_only_names(tmp_path, name):
    quoted = '"' + name.replace('"', '""') + '"'
    (tmp_path / "a.csv").write_text(TABLE.replace("b", quoted), newline="")
    found = read(tmp_path / "a.csv")
    assert found.meta["node_names"][1].replace("\n", "") == name.strip().replace("\n", "")
    found.save(tmp_path / "set")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "set"]
    (tmp_path / "b.csv").write_text(TABLE.replace("id", quoted), newline="")
    refused(tmp_path / "b.csv")


def test_links_and_odd_names_in_a_folder_of_tables(tmp_path):
    (tmp_path / "secret.csv").write_text(TABLE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.csv").symlink_to(tmp_path / "secret.csv")
    assert "is a link" in refused(tmp_path / "folder")
    (tmp_path / "folder" / "a.csv").unlink()
    (tmp_path / "folder" / "a\x1b[31m.csv").write_text(TABLE)
    assert "cannot be the name of a recording" in refused(tmp_path / "folder")


def test_a_packed_table_unpacks_no_further_than_a_line(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"frame,id,x,y\n" + b" " * (64 << 20)))
    assert "a line is longer than" in refused(tmp_path / "a.csv.gz")


@pytest.mark.parametrize("seed", range(60))
def test_damaged_tables_give_tracks_or_one_sentence(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = [f"{f},{i},{f + i / 7:.3f},{rng.normal():.3f}" for f in range(6) for i in range(3)]
    content = bytearray("\n".join(["frame,id,x,y", *rows]).encode())
    odd = list(b'\0\n\r,;\t "#-.e9aN_\xff\xef')
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(len(content)))
        match int(rng.integers(4)):
            case 0:
                content[place] = int(rng.choice(odd))
            case 1:
                content.insert(place, int(rng.choice(odd)))
            case 2:
                del content[place : place + int(rng.integers(1, 9))]
            case 3:
                content[place:place] = content[place : place + int(rng.integers(1, 40))]
    (tmp_path / "a.csv").write_bytes(bytes(content))
    try:
        found = read(tmp_path / "a.csv")
    except InputError:
        refused(tmp_path / "a.csv")
    else:
        assert np.isfinite(found.x).all()
