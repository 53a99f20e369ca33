#include "tests/support/big_answer_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

namespace distilld::test {
namespace {

constexpr std::string_view kOpen = R"({"logits":[)";
constexpr std::string_view kClose = "]}";

std::string row_of(std::uint32_t vocabulary) {
    std::string row = "[";
    for (std::uint32_t i = 0; i < vocabulary; ++i) {
        row += (i == 0 ? "" : ",") + std::string("-1.23456789012345") + std::to_string(10 + i % 90);
    }
    return row + "]";
}

/// {"logits":[[row,row],[row,row]]}: brackets and commas around `row`.
std::uint64_t bytes_of(std::uint64_t row, std::uint64_t rows, std::uint64_t columns) {
    return kOpen.size() + kClose.size() + rows * (columns * row + (columns - 1) + 2) + (rows - 1);
}

bool send_all(int socket, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

/// The body of the next request on a connection.
std::optional<std::string> read_request(int socket, std::string& unread) {
    const auto more = [&] {
        char bytes[4096];
        const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
        unread.append(bytes, got > 0 ? static_cast<std::size_t>(got) : 0);
        return got > 0;
    };
    std::size_t end = 0;
    while ((end = unread.find("\r\n\r\n")) == std::string::npos) {
        if (!more()) {
            return std::nullopt;
        }
    }
    constexpr std::string_view kLength = "Content-Length: ";
    const std::size_t length = std::stoul(unread.substr(unread.find(kLength) + kLength.size()));
    while (unread.size() < end + 4 + length) {
        if (!more()) {
            return std::nullopt;
        }
    }
    std::string body = unread.substr(end + 4, length);
    unread.erase(0, end + 4 + length);
    return body;
}

void serve(int socket, const std::string& row) {
    std::string unread;
    while (const auto request = read_request(socket, unread)) {
        // {"input_ids":[[1,2],[3,4]], …
        const std::string ids = request->substr(0, request->find("]]"));
        const auto rows = static_cast<std::uint64_t>(std::count(ids.begin(), ids.end(), '[')) - 1;
        const auto columns = (static_cast<std::uint64_t>(std::count(ids.begin(), ids.end(), ',')) + 1) / rows;
        bool sent = send_all(socket, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                                         std::to_string(bytes_of(row.size(), rows, columns)) + "\r\n\r\n") &&
                    send_all(socket, kOpen);
        for (std::uint64_t r = 0; r < rows && sent; ++r) {
            sent = send_all(socket, r == 0 ? "[" : ",[");
            for (std::uint64_t c = 0; c < columns && sent; ++c) {
                sent = (c == 0 || send_all(socket, ",")) && send_all(socket, row);
            }
            sent = sent && send_all(socket, "]");
        }
        if (!sent || !send_all(socket, kClose)) {
            break;
        }
    }
    ::close(socket);
}

[[noreturn]] void serve_all(int listener, const std::string& row) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        const int socket = ::accept(listener, nullptr, nullptr);
        if (socket >= 0) {
            std::thread([socket, &row] { serve(socket, row); }).detach();
        }
    }
}

class ForkedServer final : public BigAnswerServer {
  public:
    explicit ForkedServer(std::uint32_t vocabulary) : row_(row_of(vocabulary)) {
        const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            ::listen(listener, 64) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
            throw std::system_error(errno, std::generic_category(), "big answer server");
        }
        port_ = ntohs(address.sin_port);
        child_ = ::fork();
        if (child_ == 0) {
            serve_all(listener, row_);
        }
        ::close(listener);
        if (child_ < 0) {
            throw std::system_error(errno, std::generic_category(), "big answer server");
        }
    }
    ~ForkedServer() override {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    ForkedServer(const ForkedServer&) = delete;
    ForkedServer& operator=(const ForkedServer&) = delete;

    std::string url() const override { return "http://127.0.0.1:" + std::to_string(port_); }
    std::uint64_t answer_bytes(std::uint32_t rows, std::uint32_t columns) const override {
        return bytes_of(row_.size(), rows, columns);
    }

  private:
    std::string row_;
    std::uint16_t port_ = 0;
    pid_t child_ = -1;
};

}  // namespace

std::unique_ptr<BigAnswerServer> make_big_answer_server(std::uint32_t vocabulary) {
    return std::make_unique<ForkedServer>(vocabulary);
}

}  // namespace distilld::test
