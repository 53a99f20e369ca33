// What worker and service say to each other: a worker may be another version, or at its end.
#include <cstdint>
#include <tuple>

#include "base/utf8.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/protocol/relay_messages.hpp"
#include "server/protocol/worker_protocol.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/field_filler.hpp"

namespace distilld::fuzz {
namespace {

/// What decodes is a message that is written and read as the same line again.
template <class Message>
void check(const Result<Message>& message, Result<Message> (*decode)(std::string_view)) {
    if (!accepted(message)) {
        return;
    }
    const std::string line = encode(*message);
    demand(!line.empty() && line.find('\n') == line.size() - 1, "a message is one line");
    const auto again = decode(std::string_view(line).substr(0, line.size() - 1));
    demand(accepted(again), "what was written of a message is one");
    demand(encode(*again) == line, "a message stays the same when it is written and read");
}

template <const auto& kTable, class Message>
void add_seeds(std::vector<std::string>& seeds) {
    const auto add = [&seeds](const auto& row) {
        using One = typename std::remove_cvref_t<decltype(row)>::type;
        seeds.push_back(encode(Message(One{})));
        One filled = test::filled<One>();
        if constexpr (requires { filled.spec_json; }) {
            filled.spec_json = R"({"output":"o"})";
        }
        seeds.push_back(encode(Message(filled)));
    };
    std::apply([&add](const auto&... rows) { (add(rows), ...); }, kTable);
}

}  // namespace

void read_messages(std::string_view input) {
    // As the reader of the channel does (server/supervisor/worker_run.cpp).
    const std::string line = to_valid_utf8(std::string(input.substr(0, input.find('\n'))));
    check(decode_up(line), decode_up);
    check(decode_down(line), decode_down);
    static_cast<void>(decode_up(input));
}

std::vector<std::string> message_seeds() {
    std::vector<std::string> seeds;
    add_seeds<kUpMessages, UpMessage>(seeds);
    seeds.push_back(encode(DownMessage(CancelCommand{})));
    seeds.push_back(encode(DownMessage(CheckpointCommand{})));
    seeds.push_back(encode(DownMessage(SetLimitCommand{8})));
    seeds.emplace_back(
        R"({"type":"start","version":2,"spec":{"output":"o"},"resume":true,"trace_file":"","job_id":"j",)"
        R"("files":{"roots":["/r"]}})");
    seeds.emplace_back(R"({"type":"progress","loss":null,"step":18446744073709551615,"tokens":-1})");
    seeds.emplace_back("{\"type\":\"log\",\"message\":\"\xE9\\ud800\"}");
    return seeds;
}

void read_link(std::string_view input) {
    // As the service does with the frames of a relay (server/supervisor/remote_worker.cpp).
    NumberedLink link({"job_1", 1}, 3, 7);
    link.connect();
    std::uint64_t received = 3;
    for (const std::string_view frame : parts_of(input)) {
        const auto taken = link.take(frame);
        demand(link.received() >= received, "numbers grow");
        received = link.received();
        if (!accepted(taken)) {
            return;
        }
        if (taken->line) {
            static_cast<void>(decode_message<kFromRelay>(to_valid_utf8(*taken->line)));
            static_cast<void>(decode_message<kToRelay>(to_valid_utf8(*taken->line)));
        }
        link.confirm(received);
        while (link.next()) {
        }
    }
}

std::vector<std::string> link_seeds() {
    const std::string border(kBorder);
    const std::string greeting = R"({"type":"greeting","version":1,"job":"job_1","attempt":1,"received":7})";
    std::vector<std::string> seeds{greeting, greeting + border + R"({"type":"ack","number":7})"};
    for (const char* line : {R"({"type":"log","level":"info","message":"m"})", R"({"type":"output","line":"l"})",
                             R"({"type":"end","exit_code":1,"stderr_tail":"t","error":""})", R"({"type":"kill"})"}) {
        seeds.push_back(greeting + border + "{\"type\":\"message\",\"number\":4}\n" + line);
    }
    return seeds;
}

}  // namespace distilld::fuzz
