#include "net/http_reader.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstring>

#include "net/http_error.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kHeadRead = 4U << 10;
constexpr std::size_t kMaxRead = 64U << 10;
constexpr unsigned kMaxInterimAnswers = 100;
constexpr std::size_t kFieldOverhead = 3;  // the colon and the end of the line

std::string text_of(beast::string_view text) {
    return {text.data(), text.size()};
}

/// Beast's state machine with our own field list: Beast's throws at a field above 64 KiB.
template <bool is_request>
class Parser final : public bhttp::basic_parser<is_request> {
  public:
    explicit Parser(std::size_t max_header_bytes) : max_header_bytes_(max_header_bytes) {
        this->header_limit(static_cast<std::uint32_t>(max_header_bytes));
        this->body_limit(boost::none);
    }

    [[nodiscard]] const HttpHead& head() const { return head_; }
    void set_space(std::span<char> space) {
        space_ = space;
        filled_ = 0;
    }
    [[nodiscard]] std::size_t filled() const { return filled_; }
    [[nodiscard]] std::size_t room() const { return space_.size() - filled_; }

  private:
    void on_request_impl(bhttp::verb /*verb*/, beast::string_view method, beast::string_view target, int version,
                         error_code& /*failed*/) override {
        head_.method = text_of(method);
        head_.target = text_of(target);
        head_.version = static_cast<unsigned>(version);
    }

    void on_response_impl(int status, beast::string_view /*reason*/, int version, error_code& /*failed*/) override {
        head_.status = static_cast<unsigned>(status);
        head_.version = static_cast<unsigned>(version);
    }

    void on_field_impl(bhttp::field field, beast::string_view name, beast::string_view value,
                       error_code& failed) override {
        field_bytes_ += name.size() + value.size() + kFieldOverhead;
        if (field_bytes_ > max_header_bytes_) {
            failed = bhttp::error::header_limit;
        } else if (field == bhttp::field::transfer_encoding &&
                   (head_.version != 11 || !beast::iequals(value, "chunked"))) {
            failed = HttpError::transfer_encoding;
        } else if (!this->is_header_done()) {
            head_.fields.emplace_back(text_of(name), text_of(value));
        }
    }

    void on_header_impl(error_code& /*failed*/) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/, error_code& /*failed*/) override {}

    std::size_t on_body_impl(beast::string_view body, error_code& /*failed*/) override { return take(body); }

    void on_chunk_header_impl(std::uint64_t /*size*/, beast::string_view extensions, error_code& failed) override {
        if (extensions.size() > max_header_bytes_) {
            failed = bhttp::error::header_limit;
        }
    }

    std::size_t on_chunk_body_impl(std::uint64_t /*left*/, beast::string_view body, error_code& /*failed*/) override {
        return take(body);
    }

    void on_finish_impl(error_code& /*failed*/) override {}

    std::size_t take(beast::string_view bytes) {
        const std::size_t taken = std::min(bytes.size(), room());
        if (taken > 0) {
            std::memcpy(space_.data() + filled_, bytes.data(), taken);
            filled_ += taken;
        }
        return taken;
    }

    std::size_t max_header_bytes_;
    std::size_t field_bytes_ = 0;  // of header and trailer
    HttpHead head_;
    std::span<char> space_;
    std::size_t filled_ = 0;
};

asio::awaitable<error_code> receive(ByteStream& stream, beast::flat_buffer& buffer, std::size_t wanted) {
    const std::size_t most = std::min({wanted, kMaxRead, buffer.max_size() - buffer.size()});
    if (most == 0) {
        co_return bhttp::error::buffer_overflow;
    }
    const auto read = co_await stream.read_some(buffer.prepare(most));
    buffer.commit(read.bytes);
    co_return read.failure;
}

template <bool is_request>
class ParsingReader final : public HttpReader {
  public:
    explicit ParsingReader(std::size_t max_header_bytes) : max_header_bytes_(max_header_bytes) {
        parser_.emplace(max_header_bytes);
    }

    asio::awaitable<error_code> read_head(ByteStream& stream, beast::flat_buffer& buffer) override {
        for (unsigned interim = 0;; ++interim) {
            const error_code failed = co_await read_one_head(stream, buffer);
            if (failed) {
                co_return failed;
            }
            if (is_request || head().status / 100 != 1) {
                co_return error_code();
            }
            if (head().status == 101) {
                co_return HttpError::protocol_switched;
            }
            if (interim == kMaxInterimAnswers) {
                co_return HttpError::too_many_interim_answers;
            }
            parser_.emplace(max_header_bytes_);
        }
    }

    asio::awaitable<Piece> read_body(ByteStream& stream, beast::flat_buffer& buffer, std::span<char> space) override {
        Piece piece;
        parser_->set_space(space);
        while (!piece.failure && !done() && piece.bytes == 0) {
            piece.failure = parse_body(buffer);
            if (!piece.failure && !done() && parser_->filled() == 0) {
                piece.failure = co_await receive(stream, buffer, std::max(kHeadRead, space.size()));
                note_end(piece.failure);
            }
            piece.bytes = parser_->filled();
        }
        co_return piece;
    }

    [[nodiscard]] const HttpHead& head() const override { return parser_->head(); }
    [[nodiscard]] bool begun() const override { return begun_; }
    [[nodiscard]] bool done() const override { return parser_->is_done(); }
    [[nodiscard]] bool keep_alive() const override { return parser_->keep_alive(); }
    [[nodiscard]] bool chunked() const override { return parser_->chunked(); }
    [[nodiscard]] std::optional<std::uint64_t> content_length() const override {
        const auto length = parser_->content_length();
        return length ? std::optional(*length) : std::nullopt;
    }
    void limit_body(std::uint64_t bytes) override { parser_->body_limit(bytes); }

  private:
    asio::awaitable<error_code> read_one_head(ByteStream& stream, beast::flat_buffer& buffer) {
        error_code failed;
        while (!failed && !parser_->is_header_done()) {
            failed = parse(buffer);
            if (failed == bhttp::error::need_more) {
                failed = co_await receive(stream, buffer, kHeadRead);
                note_end(failed);
            }
        }
        co_return failed;
    }

    error_code parse(beast::flat_buffer& buffer) {
        error_code failed;
        buffer.consume(parser_->put(buffer.cdata(), failed));
        begun_ = begun_ || parser_->got_some();
        // Beast waits for a whole trailer, or for the whole line before a chunk.
        if (failed == bhttp::error::need_more && buffer.size() > max_header_bytes_) {
            failed = bhttp::error::header_limit;
        }
        return failed;
    }

    /// Parses what has come, as far as there is room for it.
    error_code parse_body(beast::flat_buffer& buffer) {
        while (!done() && buffer.size() > 0 && parser_->room() > 0) {
            const error_code failed = parse(buffer);
            if (failed) {
                return failed == bhttp::error::need_more ? error_code() : failed;
            }
        }
        return {};
    }

    /// The end of the connection ends some bodies.
    void note_end(error_code& failed) {
        if (failed != asio::error::eof) {
            return;
        }
        failed = bhttp::error::end_of_stream;
        if (parser_->got_some()) {
            parser_->put_eof(failed);
        }
    }

    std::size_t max_header_bytes_;
    std::optional<Parser<is_request>> parser_;
    bool begun_ = false;
};

}  // namespace

const std::string* HttpHead::find(std::string_view name) const noexcept {
    for (const auto& field : fields) {
        if (beast::iequals(field.first, name)) {
            return &field.second;
        }
    }
    return nullptr;
}

std::string_view HttpHead::value(std::string_view name) const noexcept {
    const std::string* found = find(name);
    return found == nullptr ? std::string_view() : *found;
}

std::size_t HttpHead::count(std::string_view name) const noexcept {
    return static_cast<std::size_t>(std::count_if(
        fields.begin(), fields.end(), [name](const auto& field) { return beast::iequals(field.first, name); }));
}

std::unique_ptr<HttpReader> make_request_reader(std::size_t max_header_bytes) {
    return std::make_unique<ParsingReader<true>>(max_header_bytes);
}

std::unique_ptr<HttpReader> make_answer_reader(std::size_t max_header_bytes) {
    return std::make_unique<ParsingReader<false>>(max_header_bytes);
}

}  // namespace distilld
