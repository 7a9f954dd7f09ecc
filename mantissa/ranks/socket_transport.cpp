#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "mantissa/base/clock.h"
#include "mantissa/ranks/transport.h"

namespace mantissa::inline v0 {

namespace {

class SocketTransport final : public Transport {
  public:
    /// A socket a rank, -1 for itself; they are closed with it.
    SocketTransport(int rank, std::vector<int> sockets, double seconds)
        : rank_(rank), sockets_(std::move(sockets)), seconds_(seconds) {}
    ~SocketTransport() override { close_all(); }
    SocketTransport(const SocketTransport&) = delete;
    SocketTransport& operator=(const SocketTransport&) = delete;

    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(sockets_.size()); }

    void exchange(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) override {
        check(send.size() == sockets_.size() && receive.size() == sockets_.size(), "a span a rank");
        std::vector<std::span<const std::byte>> to(send.begin(), send.end());
        std::vector<std::span<std::byte>> from(receive.begin(), receive.end());
        Stopwatch silence;
        for (std::vector<pollfd> waiting; !(waiting = unfinished(to, from)).empty();) {
            constexpr int milliseconds = 100;
            const int ready = ::poll(waiting.data(), waiting.size(), milliseconds);
            if (ready < 0 && errno != EINTR) throw_lost(rank_, "poll", errno);
            bool moved = false;
            for (const pollfd& each : waiting) {
                const std::size_t rank = rank_of(each.fd);
                if (each.revents & (POLLIN | POLLHUP | POLLERR)) moved |= take(rank, from[rank]);
                if (each.revents & (POLLOUT | POLLERR)) moved |= give(rank, to[rank]);
            }
            if (moved) silence = {};
            if (silence.seconds() > seconds_)
                throw LostRank(static_cast<int>(rank_of(waiting[0].fd)),
                               fmt::format("no answer within {:g} s", seconds_));
        }
    }

    void abort() noexcept override { close_all(); }

  private:
    void close_all() noexcept {
        for (int& socket : sockets_) {
            if (socket >= 0) ::close(socket);
            socket = -1;
        }
    }

    std::vector<pollfd> unfinished(const std::vector<std::span<const std::byte>>& to,
                                   const std::vector<std::span<std::byte>>& from) const {
        std::vector<pollfd> waiting;
        for (std::size_t rank = 0; rank < sockets_.size(); ++rank) {
            const int events = (to[rank].empty() ? 0 : POLLOUT) | (from[rank].empty() ? 0 : POLLIN);
            if (events != 0)
                waiting.push_back({.fd = sockets_[rank], .events = static_cast<short>(events), .revents = 0});
        }
        return waiting;
    }

    std::size_t rank_of(int socket) const {
        std::size_t rank = 0;
        while (sockets_[rank] != socket) ++rank;
        return rank;
    }

    [[noreturn]] static void throw_lost(int rank, const char* call, int error) {
        throw LostRank(rank, fmt::format("{}: {}", call, std::strerror(error)));
    }

    bool take(std::size_t rank, std::span<std::byte>& bytes) const {
        if (bytes.empty()) return false;
        const ::ssize_t got = ::recv(sockets_[rank], bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0) throw LostRank(static_cast<int>(rank), "it has ended");
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            throw_lost(static_cast<int>(rank), "it has ended: recv", errno);
        if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
        return got > 0;
    }

    bool give(std::size_t rank, std::span<const std::byte>& bytes) const {
        if (bytes.empty()) return false;
        const ::ssize_t sent =
            ::send(sockets_[rank], bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            throw_lost(static_cast<int>(rank), "it has ended: send", errno);
        if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
        return sent > 0;
    }

    int rank_;
    std::vector<int> sockets_;
    double seconds_;
};

/// A socket that is closed unless it is taken.
class OwnSocket {
  public:
    explicit OwnSocket(int socket) : socket_(socket) {}
    ~OwnSocket() {
        if (socket_ >= 0) ::close(socket_);
    }
    OwnSocket(OwnSocket&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
    OwnSocket& operator=(OwnSocket&&) = delete;
    int get() const { return socket_; }
    int take() { return std::exchange(socket_, -1); }

  private:
    int socket_;
};

/// Of Linux: a name that is no file, and goes with its socket.
struct AbstractAddress {
    explicit AbstractAddress(const std::string& name) {
        check(name.size() + 1 < sizeof address.sun_path, "a name of ranks is short");
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

    sockaddr_un address = {};
    socklen_t bytes = 0;
};

OwnSocket unconnected_socket() {
    OwnSocket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.get() < 0)
        throw UserError(fmt::format("ranks cannot be connected: socket: {}", std::strerror(errno)));
    return made;
}

/// Calls `attempt` until it holds, or throws that the rank did not come.
template <class Attempt>
void until(const Attempt& attempt, int rank, double seconds) {
    for (const Stopwatch watch; !attempt();) {
        if (watch.seconds() > seconds)
            throw LostRank(rank, fmt::format("it did not come within {:g} s", seconds));
        ::usleep(1000);
    }
}

}  // namespace

std::unique_ptr<Transport> meet_ranks(const std::string& name, int rank, int ranks, double seconds) {
    const auto address_of = [&](int of) { return AbstractAddress(fmt::format("{}-{}", name, of)); };
    const OwnSocket listening = unconnected_socket();
    const AbstractAddress own = address_of(rank);
    if (::bind(listening.get(), own.get(), own.bytes) != 0 || ::listen(listening.get(), ranks) != 0)
        throw UserError(fmt::format("ranks cannot be connected: rank {}: {}", rank, std::strerror(errno)));
    ::fcntl(listening.get(), F_SETFL, O_NONBLOCK);
    std::vector<OwnSocket> sockets;
    for (int other = 0; other < ranks; ++other)
        sockets.push_back(other < rank ? unconnected_socket() : OwnSocket(-1));
    for (int other = 0; other < rank; ++other) {
        const AbstractAddress there = address_of(other);
        const int socket = sockets[static_cast<std::size_t>(other)].get();
        until([&] { return ::connect(socket, there.get(), there.bytes) == 0; }, other, seconds);
        if (::send(socket, &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank)
            throw LostRank(other, "it has ended");
    }
    std::vector<int> connected;
    for (OwnSocket& socket : sockets) connected.push_back(socket.take());
    const auto transport = [&] { return std::make_unique<SocketTransport>(rank, connected, seconds); };
    for (int missing = ranks - 1 - rank; missing > 0; --missing) {
        int socket = -1, other = -1;
        const auto accepted = [&] {
            socket = ::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC);
            return socket >= 0;
        };
        const auto first_missing = [&] {
            return static_cast<int>(std::find(connected.begin() + rank + 1, connected.end(), -1) -
                                    connected.begin());
        };
        try {
            until(accepted, first_missing(), seconds);
        } catch (const LostRank&) {
            transport();  // closes those that are there
            throw;
        }
        const bool told = ::recv(socket, &other, sizeof other, MSG_WAITALL) == sizeof other;
        if (told && other > rank && other < ranks && connected[static_cast<std::size_t>(other)] < 0) {
            connected[static_cast<std::size_t>(other)] = socket;
        } else {
            ::close(socket);
            transport();
            throw LostRank(first_missing(), "another came in its place");
        }
    }
    return transport();
}

std::vector<std::unique_ptr<Transport>> connected_ranks(int ranks, double seconds) {
    const auto count = static_cast<std::size_t>(ranks);
    std::vector<std::vector<int>> sockets(count, std::vector<int>(count, -1));
    for (std::size_t a = 0; a < count; ++a)
        for (std::size_t b = a + 1; b < count; ++b) {
            int pair[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                throw UserError(
                    fmt::format("ranks cannot be connected: socketpair: {}", std::strerror(errno)));
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    std::vector<std::unique_ptr<Transport>> all;
    for (std::size_t rank = 0; rank < count; ++rank)
        all.push_back(std::make_unique<SocketTransport>(static_cast<int>(rank), sockets[rank], seconds));
    return all;
}

}  // namespace mantissa
