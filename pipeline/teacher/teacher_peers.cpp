#include "pipeline/teacher/teacher_peers.hpp"

#include <algorithm>

#include "pipeline/teacher/teacher_fingerprint.hpp"

namespace distilld {

std::optional<std::string> unlike_peer(const std::string& first_name, const EndpointProbe& first,
                                       const EndpointProbe& other) {
    const TeacherTargets& known = first.targets;
    const TeacherTargets& answer = other.targets;
    if (known.kind != answer.kind || known.width != answer.width) {
        return "answers rows of " + std::to_string(answer.width) + " values, not of " + std::to_string(known.width) +
               " as " + first_name;
    }
    if (known.vocabulary != 0 && answer.vocabulary != 0 && known.vocabulary != answer.vocabulary) {
        return "knows " + std::to_string(answer.vocabulary) + " tokens, not " + std::to_string(known.vocabulary) +
               " as " + first_name;
    }
    if (compare(first.tokenizer, other.tokenizer) == TokenizersAre::different) {
        return "has another tokenizer than " + first_name;
    }
    if (first.head && other.head && first.head->sha256 != other.head->sha256) {
        return "has another head (SHA-256 " + other.head->sha256 + ", not " + first.head->sha256 + ") than " +
               first_name;
    }
    if (const AnswerDifference difference = difference_of(known, answer); difference.of_other_models()) {
        return "does not serve the model of " + first_name + ": " + difference.text(known.kind);
    }
    return std::nullopt;
}

std::string describe_teacher(const TeacherEndpoint& front, std::size_t endpoints, const TeacherInfo& info,
                             bool replicas_agree) {
    std::string text = front.name();
    if (endpoints > 1) {
        text += " and " + std::to_string(endpoints - 1) + " more";
    }
    if (!info.absent.empty()) {
        text += " (" + std::to_string(info.absent.size()) + " not up yet)";
    }
    if (!info.refused.empty()) {
        text += " (" + std::to_string(info.refused.size()) + " left out)";
    }
    text += ": " + front.codec()->description();
    if (info.top_k == 0 && info.vocabulary_size != 0) {
        text += ", vocabulary " + std::to_string(info.vocabulary_size);
    }
    text += info.deterministic ? "" : ", answers differ from one request to the next";
    text += replicas_agree ? "" : ", endpoints answer differently";
    return text;
}

AnswerSize larger_of(const AnswerSize& a, const AnswerSize& b) {
    AnswerSize size;
    size.held_bytes = std::max(a.held_bytes, b.held_bytes);
    size.decode_bytes = std::max(a.decode_bytes, b.decode_bytes);
    size.max_accepted_bytes = std::max(a.max_accepted_bytes, b.max_accepted_bytes);
    if (a.max_wire_bytes && b.max_wire_bytes) {
        size.max_wire_bytes = std::max(*a.max_wire_bytes, *b.max_wire_bytes);
    }
    return size;
}

std::string waited_for(const std::vector<std::string>& said) {
    constexpr std::size_t kMaxNamed = 3;
    std::string text;
    std::size_t waiting = 0;
    for (const std::string& one : said) {
        if (!one.empty() && ++waiting <= kMaxNamed) {
            text += (text.empty() ? "" : "; ") + one;
        }
    }
    return text + (waiting > kMaxNamed ? "; and " + std::to_string(waiting - kMaxNamed) + " more" : "");
}

}  // namespace distilld
