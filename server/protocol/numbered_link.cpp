#include "server/protocol/numbered_link.hpp"

#include <algorithm>
#include <boost/describe/class.hpp>
#include <tuple>
#include <utility>
#include <variant>

#include "base/type_table.hpp"
#include "server/protocol/message_codec.hpp"
#include "server/protocol/worker_messages.hpp"

namespace distilld {

struct LinkGreeting {
    std::uint32_t version = 0;
    std::string job;
    std::uint64_t attempt = 0;
    std::uint64_t received = 0;
};
struct LinkMessage {
    std::uint64_t number = 0;
};
struct LinkAck {
    std::uint64_t number = 0;
};
BOOST_DESCRIBE_STRUCT(LinkGreeting, (), (version, job, attempt, received))
BOOST_DESCRIBE_STRUCT(LinkMessage, (), (number))
BOOST_DESCRIBE_STRUCT(LinkAck, (), (number))

namespace {

constexpr std::size_t kMaxHeaderBytes = 4096;

constexpr std::tuple kLinkFrames{MessageRow<LinkGreeting>{"greeting"}, MessageRow<LinkMessage>{"message"},
                                 MessageRow<LinkAck>{"ack"}};
using LinkFrame = VariantOf<kLinkFrames>;

Error link_error(const std::string& what) {
    return invalid_input("the worker's link: " + what);
}

std::string_view header_of(std::string_view frame) {
    return frame.substr(0, frame.find('\n'));
}

Result<LinkFrame> read_header(std::string_view header) {
    if (header.size() > kMaxHeaderBytes) {
        return link_error("a frame begins with more than " + std::to_string(kMaxHeaderBytes) + " bytes without a line");
    }
    auto frame = decode_message<kLinkFrames>(header);
    if (!frame) {
        return link_error(frame.error().message);
    }
    return frame;
}

Result<LinkGreeting> read_greeting(std::string_view frame) {
    auto header = read_header(header_of(frame));
    if (!header) {
        return header.error();
    }
    auto* greeting = std::get_if<LinkGreeting>(&*header);
    if (greeting == nullptr) {
        return link_error("the first frame is not a greeting");
    }
    if (greeting->version != kLinkVersion) {
        return link_error("the other side speaks version " + std::to_string(greeting->version) + ", not " +
                          std::to_string(kLinkVersion) + ": both need the same build of distilld");
    }
    return std::move(*greeting);
}

}  // namespace

NumberedLink::NumberedLink(JobAttempt attempt, std::uint64_t received, std::optional<std::uint64_t> sent)
    : attempt_(std::move(attempt)), received_(received), confirmed_(received) {
    if (sent) {
        queue_.emplace(*sent);
    }
}

void NumberedLink::push(std::string line, Keep keep) {
    if (queue_) {
        queue_->push(std::move(line), keep);
    } else {
        early_.push_back({std::move(line), keep});
    }
}

void NumberedLink::connect() {
    greets_ = true;
    greeted_ = false;
}

Result<NumberedLink::Taken> NumberedLink::take(std::string_view frame) {
    if (!greeted_) {
        return take_greeting(frame);
    }
    const std::string_view header = header_of(frame);
    const auto read = read_header(header);
    if (!read) {
        return read.error();
    }
    if (const auto* ack = std::get_if<LinkAck>(&*read)) {
        if (!queue_->acknowledge(ack->number)) {
            return link_error("message " + std::to_string(ack->number) + " is acknowledged, but was never sent");
        }
        return Taken{};
    }
    const auto* message = std::get_if<LinkMessage>(&*read);
    if (message == nullptr) {
        return link_error("a second greeting");
    }
    if (header.size() == frame.size()) {
        return link_error("message " + std::to_string(message->number) + " is empty");
    }
    if (message->number <= received_) {
        return Taken{};
    }
    received_ = message->number;
    std::string line(frame.substr(header.size() + 1));
    if (line.ends_with('\n')) {
        line.pop_back();
    }
    return Taken{.line = std::move(line)};
}

Result<NumberedLink::Taken> NumberedLink::take_greeting(std::string_view frame) {
    const auto greeting = read_greeting(frame);
    if (!greeting) {
        return greeting.error();
    }
    if (attempt_.job.empty()) {
        attempt_ = {greeting->job, greeting->attempt};
    }
    if (greeting->job != attempt_.job || greeting->attempt != attempt_.number) {
        return link_error("the greeting is for attempt " + std::to_string(greeting->attempt) + " of '" + greeting->job +
                          "', not for attempt " + std::to_string(attempt_.number) + " of '" + attempt_.job + "'");
    }
    if (!queue_) {
        queue_.emplace(greeting->received);
        for (auto& early : std::exchange(early_, {})) {
            queue_->push(std::move(early.line), early.keep);
        }
    } else if (greeting->received < queue_->acknowledged() || !queue_->acknowledge(greeting->received)) {
        return link_error("the other side has " + std::to_string(greeting->received) +
                          " messages of this one; it was started a second time");
    }
    queue_->reconnect();
    greeted_ = true;
    return Taken{.greeting = true};
}

std::optional<std::string> NumberedLink::next() {
    if (greets_ && !attempt_.job.empty()) {
        greets_ = false;
        acked_ = confirmed_;
        return encode_message<kLinkFrames>(LinkGreeting{kLinkVersion, attempt_.job, attempt_.number, confirmed_});
    }
    if (greets_ || !greeted_) {
        return std::nullopt;
    }
    if (acked_ < confirmed_) {
        acked_ = confirmed_;
        return encode_message<kLinkFrames>(LinkAck{acked_});
    }
    if (const auto message = queue_->next()) {
        return encode_message<kLinkFrames>(LinkMessage{message->sequence}) + message->line;
    }
    return std::nullopt;
}

void NumberedLink::confirm(std::uint64_t number) {
    confirmed_ = std::max(confirmed_, std::min(number, received_));
}

}  // namespace distilld
