"""The whole mesh in one virtual loop: the wirings of the processes over simulated links, disks, sockets and clocks."""
