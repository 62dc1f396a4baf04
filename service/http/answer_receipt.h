// AnswerReceipt: what was changed for one answer, and what was noticed about it. It fills while the
// answer is made; each entry is counted when it is added, the log line comes with its end. Holds no
// text of a request: names that a client made up are cut to plain characters (compact_receipt).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/receipt.h"
#include "service/metrics.h"

namespace tandem::service {

class AnswerReceipt {
 public:
  struct Options {
    std::string id;     // of the answer, for the log
    std::string model;  // configured name
    bool explain = false;  // the client wants the whole list in the body
  };
  AnswerReceipt(Metrics& metrics, Options options);
  ~AnswerReceipt();
  AnswerReceipt(const AnswerReceipt&) = delete;
  AnswerReceipt& operator=(const AnswerReceipt&) = delete;

  void add(std::vector<policies::ReceiptEntry> entries);
  // An answer came that has thoughts and nothing else.
  void count_empty_answer();

  [[nodiscard]] bool explain() const { return options_.explain; }
  // For the header x-tandem-receipt; empty: nothing was changed.
  [[nodiscard]] std::string header() const { return policies::compact_receipt(entries_); }
  // {"receipt": [...]}, the member `tandem` of a body.
  [[nodiscard]] Json json() const;

 private:
  Metrics& metrics_;
  const Options options_;
  std::vector<policies::ReceiptEntry> entries_;
};

}  // namespace tandem::service
