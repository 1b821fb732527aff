"""The budget ledger of a data set: every release is recorded before it happens."""

from dpglm.ledger.entry import LedgerContents as LedgerContents
from dpglm.ledger.entry import LedgerEntry as LedgerEntry
from dpglm.ledger.entry import LedgerReference as LedgerReference
from dpglm.ledger.entry import LedgerTerms as LedgerTerms
from dpglm.ledger.filters import BasicFilter as BasicFilter
from dpglm.ledger.filters import GaussianFilter as GaussianFilter
from dpglm.ledger.filters import PrivacyFilter as PrivacyFilter
from dpglm.ledger.filters import RenyiFilter as RenyiFilter
from dpglm.ledger.filters import filter_from_dict as filter_from_dict
from dpglm.ledger.filters import make_filter as make_filter
from dpglm.ledger.ledger import PrivacyLedger as PrivacyLedger
