#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace distilld::test {

/// A socket that speaks bytes. Each wait is bounded, so that a server which stays silent fails the test.
class RawClient {
  public:
    explicit RawClient(const std::string& address) {
        const auto colon = address.rfind(':');
        sockaddr_in peer{};
        peer.sin_family = AF_INET;
        peer.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
        inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr);
        fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
            throw std::runtime_error("connect");
        }
    }
    ~RawClient() { close(); }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    void close() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
        fd_ = -1;
    }
    void write(std::string_view text) {
        while (!text.empty()) {
            const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;
            }
            text.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    /// False at the end of the stream.
    bool read_more() {
        pollfd wait{fd_, POLLIN, 0};
        if (::poll(&wait, 1, 20000) <= 0) {
            throw std::runtime_error("the server said nothing for 20 s; got: " + data_);
        }
        char piece[65536];
        const ssize_t got = ::recv(fd_, piece, sizeof(piece), 0);
        if (got <= 0) {
            return false;
        }
        data_.append(piece, static_cast<std::size_t>(got));
        return true;
    }
    std::string read_until(std::string_view mark) {
        std::size_t at = 0;
        while ((at = data_.find(mark)) == std::string::npos) {
            if (!read_more()) {
                throw std::runtime_error("closed before '" + std::string(mark) + "'; got: " + data_);
            }
        }
        std::string text = data_.substr(0, at + mark.size());
        data_.erase(0, at + mark.size());
        return text;
    }
    /// One response with a Content-Length (none: no body).
    std::string read_response(bool head = false) {
        std::string text = read_until("\r\n\r\n");
        const auto at = text.find("Content-Length: ");
        if (at == std::string::npos || head) {
            return text;
        }
        const std::size_t size = std::stoul(text.substr(at + 16));
        while (data_.size() < size) {
            if (!read_more()) {
                throw std::runtime_error("closed within a body");
            }
        }
        text += data_.substr(0, size);
        data_.erase(0, size);
        return text;
    }
    std::string read_all() {
        while (read_more()) {
        }
        return std::exchange(data_, {});
    }

  private:
    int fd_ = -1;
    std::string data_;
};

inline std::string get(std::string_view path, std::string_view more = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more) + "\r\n";
}

inline std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n" + std::string(more) + "\r\n" + std::string(body);
}

}  // namespace distilld::test
