"""Delivery: every chat's lane, and the door through which items come in."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from gateway.delivery import plan
from gateway.delivery.lane import Lane
from gateway.delivery.plan import Phase
from gateway.delivery.queue import FIRST_LIVE_DELAY, Entry
from gateway.delivery.view import read_address, read_shown, write_shown
from platforms.core.contract import Adapter, Address
from sessions.records import Item, ItemState
from sessions.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

log = logging.getLogger(__name__)
