#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>

#include "net/http_reader.hpp"
#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"

namespace distilld::http {

/// The body of a request after its head was read, piece by piece. On the session's executor; the connection must
/// outlive it.
class StreamedBody final : public http::BodySource {
  public:
    StreamedBody(Connection& connection, std::unique_ptr<HttpReader> reader, std::uint64_t limit);

    boost::asio::awaitable<http::BodyPiece> next() override;

    /// Whether the body was read completely.
    [[nodiscard]] bool whole() const noexcept { return end_ == http::BodyEnd::whole; }
    /// Content-Length, or the limit of a chunked body.
    [[nodiscard]] std::uint64_t expected_bytes() const noexcept { return expected_bytes_; }

  private:
    Connection& connection_;
    std::unique_ptr<HttpReader> reader_;
    std::uint64_t expected_bytes_;
    http::BodyEnd end_ = http::BodyEnd::not_yet;
};

}  // namespace distilld::http
