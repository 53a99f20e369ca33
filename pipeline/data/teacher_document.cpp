#include "pipeline/data/teacher_document.hpp"

#include <algorithm>
#include <span>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

namespace {

/// Labels of tokens that follow another one.
bool has_labels(const Document& document) {
    const auto labels = std::span(document.labels).subspan(std::min<std::size_t>(1, document.labels.size()));
    return std::ranges::any_of(labels, [](std::int32_t label) { return label != kIgnoredLabel; });
}

}  // namespace

bool align_with_teacher(Document& document) {
    if (!document.has_labels) {
        document.labels = document.ids;
        document.has_labels = true;
    }
    const bool had_labels = has_labels(document);
    const std::size_t most = std::min(document.ids.size(), document.teacher_ids.size());
    const auto differ = std::mismatch(document.ids.rbegin(), document.ids.rbegin() + static_cast<std::ptrdiff_t>(most),
                                      document.teacher_ids.rbegin());
    const auto common = static_cast<std::size_t>(differ.first - document.ids.rbegin());
    const std::size_t answered = std::min(common, most == 0 ? 0 : most - 1);
    std::fill_n(document.labels.begin(), document.ids.size() - answered, kIgnoredLabel);
    return !had_labels || has_labels(document);
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
