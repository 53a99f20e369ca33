#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>

#include "api/http_message.hpp"
#include "net/http_reader.hpp"
#include "server/http/connection.hpp"

namespace distilld::http {

/// The body of a request whose head has been read, piece by piece. On the session's executor; the connection must
/// outlive it.
class StreamedBody final : public api::BodySource {
  public:
    StreamedBody(Connection& connection, std::unique_ptr<net::HttpReader> reader, std::uint64_t limit);

    boost::asio::awaitable<api::BodyPiece> next() override;

    /// Nothing of it is left on the connection.
    [[nodiscard]] bool whole() const noexcept { return end_ == api::BodyEnd::whole; }
    /// What its head says, or the limit.
    [[nodiscard]] std::uint64_t expected_bytes() const noexcept { return expected_bytes_; }

  private:
    Connection& connection_;
    std::unique_ptr<net::HttpReader> reader_;
    std::uint64_t expected_bytes_;
    api::BodyEnd end_ = api::BodyEnd::not_yet;
};

}  // namespace distilld::http
