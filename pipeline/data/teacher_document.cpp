#include "pipeline/data/teacher_document.hpp"

#include <algorithm>
#include <span>

namespace distilld {

namespace {

/// The labels of tokens that follow another one.
std::span<const std::int32_t> following(const Document& document) {
    return std::span(document.labels).subspan(std::min<std::size_t>(1, document.labels.size()));
}

}  // namespace

bool align_with_teacher(Document& document) {
    if (!document.has_labels) {
        document.labels = document.ids;
        document.has_labels = true;
    }
    const bool had_target = has_target(following(document));
    const std::size_t most = std::min(document.ids.size(), document.teacher_ids.size());
    const auto differ = std::mismatch(document.ids.rbegin(), document.ids.rbegin() + static_cast<std::ptrdiff_t>(most),
                                      document.teacher_ids.rbegin());
    const auto common = static_cast<std::size_t>(differ.first - document.ids.rbegin());
    const std::size_t answered = std::min(common, most == 0 ? 0 : most - 1);
    std::fill_n(document.labels.begin(), document.ids.size() - answered, kIgnoredLabel);
    return !had_target || has_target(following(document));
}

Document teacher_document(const Document& document, std::size_t cut) {
    Document read;
    const std::size_t count = document.teacher_ids.size() - std::min(cut, document.teacher_ids.size());
    read.ids.assign(document.teacher_ids.begin(), document.teacher_ids.begin() + static_cast<std::ptrdiff_t>(count));
    read.labels.assign(count, kIgnoredLabel);
    read.has_labels = true;
    const std::size_t kept = document.labels.size() - std::min(cut, document.labels.size());
    const auto shared = static_cast<std::ptrdiff_t>(std::min(count, kept));
    const auto end = document.labels.begin() + static_cast<std::ptrdiff_t>(kept);
    std::copy(end - shared, end, read.labels.end() - shared);
    read.from_text = document.from_text;
    read.teacher = document.teacher;
    return read;
}

}  // namespace distilld
