"""Handmade files, valid ones and ones that claim more than they hold."""

import io
import tarfile
import zipfile

import numpy as np

X = np.random.default_rng(0).standard_normal((2, 6, 4, 3))

ASF = """# a skeleton of two bones
:version 1.10
:units
  length 0.45
  angle deg
:root
   order TX TY TZ RX RY RZ
   axis XYZ
   position 0 0 0
   orientation 0 0 0
:bonedata
  begin
     id 1
     name thigh
     direction 0 -1 0
     length 2.0
     axis 0 0 20 XYZ
    dof rx ry rz
    limits (-160.0 20.0)
           (-70.0 70.0)
           (-60.0 70.0)
  end
  begin
     id 2
     name shin
     direction 0 -1 0
     length 1.5
     axis 90 0 0 XYZ
    dof rx
    limits (-10.0 170.0)
  end
:hierarchy
  begin
    root thigh
    thigh shin
  end
"""
AMC = """#!OML:ASF
:FULLY-SPECIFIED
:DEGREES
1
root 1 2 3 0 0 0
thigh 0 0 0
shin 0
2
root 1 2 3 90 0 0
thigh 10 20 30
shin 40
"""


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape, descr="<f8"):
    """A .npy file of this shape, without its numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def npz(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tar(path, members, mode="w"):
    """A tar file of texts, or of prepared members."""
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content.encode("latin-1")
            info.size = info.size or len(data)
            archive.addfile(info, io.BytesIO(data) if data else None)
    return path


def tar_header(name, size, kind=b"0"):
    """The 512 bytes before a member, of any size that 64 bits can say, negative ones too."""
    number = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
    fields = [name.encode().ljust(100, b"\0"), b"0000644\0", b"0000000\0", b"0000000\0", number]
    fields += [b"%011o\0" % 0, b" " * 8, kind, bytes(100), b"ustar\x0000", bytes(247)]
    block = b"".join(fields)
    assert len(block) == 512
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
