import pickle
import socket
import threading
import time

import pytest

from vlmgym.workers.channel import Channel, ChannelClosed


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_messages_of_any_size_arrive_in_order(ends):
    near, far = map(Channel, ends)
    sent = [None, {"a": [1, 2]}, b"x" * 5_000_000, "end"]
    thread = threading.Thread(target=lambda: [near.send(Channel.pack(message), 10) for message in sent])
    thread.start()
    assert [far.receive(10) for _ in sent] == sent
    thread.join()


def test_timeouts(ends):
    near = Channel(ends[0])
    for wait in (
        lambda: near.receive(0.1),
        lambda: near.send(Channel.pack(b"x" * 50_000_000), 0.1),
    ):
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            wait()
        assert time.monotonic() - start < 5


def test_timeout_in_the_middle_of_a_message(ends):
    message = Channel.pack(b"x" * 1000)
    ends[1].sendall(message[:500])
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(ends[0]).receive(0.1)
    assert time.monotonic() - start < 5


def test_timeout_of_zero_reads_available_messages(ends):
    near, far = map(Channel, ends)
    near.send(Channel.pack("here"))
    assert far.receive(0.0) == "here"


def test_non_blocking_messages(ends):
    near, far = map(Channel, ends)
    sent = ["a", b"x" * 5_000_000, "end"]
    unsent, received = bytearray(b"".join(map(Channel.pack, sent))), []
    while len(received) < len(sent):
        if unsent:
            near.send_available(unsent)
        received += map(pickle.loads, far.receive_available())
    assert received == sent
    near.close()
    with pytest.raises(ChannelClosed):
        far.receive_available()


def test_closed_end(ends):
    near, far = map(Channel, ends)
    far.close()
    far.close()
    with pytest.raises(ChannelClosed):
        near.receive()
    with pytest.raises(ChannelClosed):
        near.send(Channel.pack(b"x" * 50_000_000), 5)


def test_unpicklable_message():
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        Channel.pack(lambda: 0)
