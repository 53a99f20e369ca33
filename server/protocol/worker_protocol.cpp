#include "server/protocol/worker_protocol.hpp"

namespace distilld {

std::string encode(const DownMessage& message) {
    return encode_message<kDownMessages>(message);
}

std::string encode(const UpMessage& message) {
    return encode_message<kUpMessages>(message);
}

Result<DownMessage> decode_down(std::string_view line) {
    return decode_message<kDownMessages>(line);
}

Result<UpMessage> decode_up(std::string_view line) {
    return decode_message<kUpMessages>(line);
}

}  // namespace distilld
