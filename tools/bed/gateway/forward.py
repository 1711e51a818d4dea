# SPDX-License-Identifier: Apache-2.0
"""Gives several API servers one address: forwards the connections to a TCP port to the servers in turn, and skips
servers that do not accept connections.

``python3 forward.py PORT HOST:PORT...``
"""

import asyncio
import itertools
import sys

CONNECT_SECONDS = 1.0


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction. At its end, close that direction only: the other one goes on."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def main(port: int, servers: list[tuple[str, int]]) -> None:
    turn = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turn)
        for offset in range(len(servers)):
            host, backend_port = servers[(first + offset) % len(servers)]
            try:
                connecting = asyncio.open_connection(host, backend_port)
                backend_reader, backend_writer = await asyncio.wait_for(connecting, CONNECT_SECONDS)
            except (OSError, TimeoutError):
                continue
            await asyncio.gather(copy(reader, backend_writer), copy(backend_reader, writer))
            backend_writer.close()
            break
        writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", port)
    await server.serve_forever()


if __name__ == "__main__":
    backends = [address.rsplit(":", 1) for address in sys.argv[2:]]
    asyncio.run(main(int(sys.argv[1]), [(host, int(port)) for host, port in backends]))
