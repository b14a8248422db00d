"""Sends a recording as a microphone would, and prints what comes back: python speak.py greeting.wav"""

import asyncio
import sys
import wave

from websockets.asyncio.client import ClientConnection, connect


async def speak(path: str, socket: ClientConnection) -> None:
    with wave.open(path) as recording:
        while part := recording.readframes(1600):
            await socket.send(part)
            await asyncio.sleep(0.1)
    await socket.send(b"")


async def main(path: str, url: str = "ws://localhost:3000/events") -> None:
    async with connect(url) as socket, asyncio.TaskGroup() as both:
        both.create_task(speak(path, socket))
        async for event in socket:
            print(event)


asyncio.run(main(*sys.argv[1:]))
