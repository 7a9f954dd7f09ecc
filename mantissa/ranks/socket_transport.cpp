#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>

#include "mantissa/base/clock.h"
#include "mantissa/ranks/transport.h"

namespace mantissa::inline v0 {

namespace {

class SocketTransport final : public Transport {
  public:
    /// A socket a rank, -1 for itself; closed with the transport.
    SocketTransport(int rank, std::vector<int> sockets, double seconds)
        : Transport(seconds), rank_(rank), sockets_(std::move(sockets)), ways_(sockets_.size()) {}
    ~SocketTransport() override { close_all(); }

    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(sockets_.size()); }

    void start(std::span<const std::span<const std::byte>> send,
               std::span<const std::span<std::byte>> receive) override {
        check(send.size() == ways_.size() && receive.size() == ways_.size(), "a span a rank");
        for (std::size_t rank = 0; rank < ways_.size(); ++rank) {
            if (!send[rank].empty()) ways_[rank].to.push_back({started_, send[rank]});
            if (!receive[rank].empty()) ways_[rank].from.push_back({started_, receive[rank]});
        }
        ++started_;
        advance();
    }

    void advance() override {
        for (std::size_t rank = 0; rank < ways_.size(); ++rank) {
            while (take(rank)) {
            }
            while (give(rank)) {
            }
        }
    }

    int finish_oldest() override {
        advance();
        const auto late = std::ranges::find_if(ways_, [&](const Way& way) { return is_unfinished(way); });
        if (late != ways_.end()) return static_cast<int>(late - ways_.begin());
        ++finished_;
        return -1;
    }

    void abort() noexcept override { close_all(); }

  private:
    void close_all() noexcept {
        for (int& socket : sockets_) {
            if (socket >= 0) ::close(socket);
            socket = -1;
        }
    }

    /// The unfinished part of an exchange, by its number.
    template <class Byte>
    struct Passing {
        std::uint64_t exchange = 0;
        std::span<Byte> bytes;
    };
    /// Messages on their way to a rank and from it, in the order of the exchanges.
    struct Way {
        std::deque<Passing<const std::byte>> to;
        std::deque<Passing<std::byte>> from;
    };

    template <class Byte>
    bool is_of_oldest(const std::deque<Passing<Byte>>& way) const {
        return !way.empty() && way.front().exchange == finished_;
    }
    bool is_unfinished(const Way& way) const { return is_of_oldest(way.to) || is_of_oldest(way.from); }

    [[noreturn]] static void throw_lost(int rank, const char* call, int error) {
        throw LostRank(rank, fmt::format("{}: {}", call, std::strerror(error)));
    }

    /// Both functions return whether bytes moved.
    bool take(std::size_t rank) {
        auto& from = ways_[rank].from;
        if (from.empty()) return false;
        std::span<std::byte>& bytes = from.front().bytes;
        const ::ssize_t got = ::recv(sockets_[rank], bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0) throw LostRank(static_cast<int>(rank), "it has ended");
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            throw_lost(static_cast<int>(rank), "it has ended: recv", errno);
        return got > 0 && passed(from, got);
    }

    bool give(std::size_t rank) {
        auto& to = ways_[rank].to;
        if (to.empty()) return false;
        const std::span<const std::byte>& bytes = to.front().bytes;
        const ::ssize_t sent =
            ::send(sockets_[rank], bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            throw_lost(static_cast<int>(rank), "it has ended: send", errno);
        return sent > 0 && passed(to, sent);
    }

    template <class Byte>
    static bool passed(std::deque<Passing<Byte>>& way, ::ssize_t count) {
        std::span<Byte>& bytes = way.front().bytes;
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        if (bytes.empty()) way.pop_front();
        return true;
    }

    int rank_;
    std::vector<int> sockets_;
    std::vector<Way> ways_;                     // by rank
    std::uint64_t started_ = 0, finished_ = 0;  // exchanges
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

/// An abstract address of Linux: a name that is no file, and goes with its socket.
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
            transport();  // closes the open connections
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
